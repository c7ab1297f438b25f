// gRPC calls over one kept connection for each virtual user: unary calls, or server streams of `messages` messages.
//
// The latency of a call counts from right before it is made until the script has its answer, or the end of its stream. A call tells the
// backend the latency of the call before it in µs, by the metadata `lab-told-us`, so that the backend can add the latencies up, too.
import exec from 'k6/execution';
import { Client, Stream } from 'k6/net/grpc';
import { Counter, Trend } from 'k6/metrics';

const load = @LOAD@;
const client = new Client();
client.load([], 'grpc.proto');

const UNKNOWN = 2;
const DEADLINE_EXCEEDED = 4;
const CODES = 17;
const latency = new Trend('lab_latency', true);
const toldSum = new Counter('lab_told_us');
const failed = {};
for (const kind of load.kinds) failed[kind] = new Counter(`lab_${kind}`);
const codes = [];
for (let code = 0; code < CODES; code += 1) codes.push(new Counter(`lab_code_${code}`));

export const options = {
  insecureSkipTLSVerify: true,
  summaryTrendStats: load.stats,
  systemTags: [],
  scenarios: { load: load.scenario },
};

const now = () => exec.instance.currentTestRunDuration;
let [connected, warned, last] = [false, false, 0];

function warn(text) {
  if (!warned) console.warn(`failed: ${String(text).split('\n')[0]}`); // once for every virtual user, not once for every failure
  warned = true;
}

function connect() {
  const params = { plaintext: load.plaintext, timeout: load.timeout_ms };
  if (load.authority) params.authority = load.authority;
  try {
    connected = client.connect(load.address, params);
  } catch (error) {
    failed.connect.add(1);
    warn(error);
  }
}

// A call that nobody has answered is no answer with a wrong status, though gRPC's client gives it a status, too.
function kindOf(code, message) {
  if (code === DEADLINE_EXCEEDED) return 'timeout';
  if (/unexpected HTTP status/.test(message)) return 'status'; // a page of the proxy's, which is no answer by gRPC
  return /transport|connection|RST_STREAM|EOF|reset by peer/i.test(message) ? 'read' : 'status';
}

function finish(began, told, code, message) {
  const us = Math.round((now() - began) * 1000);
  const kind = code ? kindOf(code, message) : '';
  if (code) {
    failed[kind].add(1);
    codes[code].add(1);
    warn(`${code} ${message}`);
  }
  if (kind && kind !== 'status') {
    last = told; // the next call tells it instead
    return;
  }
  latency.add(us / 1000);
  toldSum.add(told);
  last = us;
}

function unary(began, told, params) {
  const response = client.invoke(load.method, load.request, params);
  finish(began, told, Number(response.status), response.error ? response.error.message : '');
}

function stream(began, told, params) {
  const call = new Stream(client, load.method, params);
  let [heard, code, message] = [0, 0, ''];
  call.on('data', () => (heard += 1));
  call.on('error', (error) => ([code, message] = [Number(error.code) || UNKNOWN, error.message]));
  call.on('end', () => {
    if (!code && heard !== load.messages) [code, message] = [UNKNOWN, `${heard} messages`];
    finish(began, told, code, message);
  });
  call.write(load.request);
  call.end();
}

export default function () {
  if (!connected) connect();
  if (!connected) return;
  const told = last;
  last = 0;
  const params = { discardResponseMessage: true, timeout: load.timeout_ms, metadata: { 'lab-told-us': String(told) } };
  (load.messages ? stream : unary)(now(), told, params);
}

export function handleSummary(data) {
  const values = (name) => (data.metrics[name] ? data.metrics[name].values : null);
  const count = (name) => (values(name) ? values(name).count : 0);
  const errors = {};
  for (const kind of load.kinds) errors[kind] = count('lab_' + kind);
  const line = {
    lab_grpc: 1,
    duration_ms: data.state.testRunDurationMs,
    made: count('grpc_req_duration'),
    dropped: count('dropped_iterations'),
    messages: count('grpc_streams_msgs_received'),
    received_bytes: count('data_received'),
    told_us: count('lab_told_us'),
    codes: codes.map((_, code) => count(`lab_code_${code}`)),
    errors: errors,
    latency: values('lab_latency') || {},
  };
  return { stdout: JSON.stringify(line) + '\n' };
}
