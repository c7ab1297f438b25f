// Large bodies in parallel, one after the other by every virtual user. A line when one begins, and one when it is over,
// whatever became of it; what is broken off when the time is up has the first alone:
//
//     begun 3 1763764411142                           number, when (ms since the epoch)
//     transfer 3 1763764412345 1203.1 11.3 200 -      number, when, ms it took from connecting on, ms from connecting on to the
//                                                     answer's first byte (-: none came), status, why it failed
import exec from 'k6/execution';
import http from 'k6/http';
import { sleep } from 'k6';

const load = JSON.parse(open('./load.json'));
const params = {
  throw: true,
  redirects: 0,
  responseType: 'none',
  timeout: load.timeout_ms,
  headers: Object.assign({ 'Content-Type': 'application/octet-stream' }, load.host ? { Host: load.host } : {}),
};
const AGAIN_S = 0.1; // what is refused at once is not asked for in a busy loop
let body = null; // one for each virtual user, made by its first upload

export const options = {
  insecureSkipTLSVerify: true,
  noConnectionReuse: true,
  systemTags: [],
  scenarios: { transfers: load.scenario },
};

function sent() {
  if (!load.upload) return http.get(`${load.url}/${load.page}`, params);
  body = body || new ArrayBuffer(load.page_bytes);
  return http.post(`${load.url}/upload`, body, params);
}

export default function () {
  const tell = (took, first, status, why) =>
    console.log(`transfer ${exec.scenario.iterationInTest} ${Date.now()} ${took.toFixed(3)} ${first} ${status} ${why}`);
  console.log(`begun ${exec.scenario.iterationInTest} ${Date.now()}`);
  const began = exec.instance.currentTestRunDuration;
  try {
    const { status, timings } = sent();
    const connected = timings.connecting + timings.tls_handshaking;
    tell(connected + timings.duration, (connected + timings.sending + timings.waiting).toFixed(3), status, '-');
    if (status > 299) sleep(AGAIN_S);
  } catch (error) {
    tell(exec.instance.currentTestRunDuration - began, '-', 0, String(error).replace(/\s+/g, ' '));
    sleep(AGAIN_S);
  }
}
