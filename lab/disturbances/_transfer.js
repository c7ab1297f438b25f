// Large bodies in parallel, one after the other by every virtual user. A line when a transfer begins, and a line when it
// ends, well or not. A transfer that breaks off when the time is over has only the first line:
//
//     begun 3 1763764411142                           number, time (ms since the epoch)
//     transfer 3 1763764412345 1203.1 11.3 200 -      number, time, duration from the connect on (ms), time from the connect
//                                                     to the answer's first byte (ms; - = none came), status, error (- = none)
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
const AGAIN_S = 0.1; // the wait after a refusal, so that immediate refusals make no busy loop
let body = null; // the body of this virtual user, made by its first upload

export const options = {
  insecureSkipTLSVerify: true,
  noConnectionReuse: true,
  systemTags: [],
  scenarios: { transfers: load.scenario },
};

function transfer() {
  if (!load.upload) return http.get(`${load.url}/${load.page}`, params);
  body = body || new ArrayBuffer(load.page_bytes);
  return http.post(`${load.url}/upload`, body, params);
}

export default function () {
  const log = (took, first, status, reason) =>
    console.log(`transfer ${exec.scenario.iterationInTest} ${Date.now()} ${took.toFixed(3)} ${first} ${status} ${reason}`);
  console.log(`begun ${exec.scenario.iterationInTest} ${Date.now()}`);
  const began = exec.instance.currentTestRunDuration;
  try {
    const { status, timings } = transfer();
    const connected = timings.connecting + timings.tls_handshaking;
    log(connected + timings.duration, (connected + timings.sending + timings.waiting).toFixed(3), status, '-');
    if (status > 299) sleep(AGAIN_S);
  } catch (error) {
    log(exec.instance.currentTestRunDuration - began, '-', 0, String(error).replace(/\s+/g, ' '));
    sleep(AGAIN_S);
  }
}
