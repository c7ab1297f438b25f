// WebSockets, one for each virtual user: opened one after another, each with a message every `every_ms`, which the backend sends back.
// Each is a line of the log:
//
//     websocket {"number":12,"wall_ms":1796400000123,"opened_us":512,…,"trips_us":[412,398]}
//
// Times are µs since the run began, by the clock that k6 measures with; only wall_ms is of the machine's clock. A message begins with its
// number and with the round trips that were measured since the last one, so that the backend can add them up, too.
import exec from 'k6/execution';
import { WebSocket } from 'k6/websockets';

const load = @LOAD@;
const padding = 'x'.repeat(load.size);
const COMPLETE = 0;
const CUT = 1;
const REFUSED = 2;
const SILENT = 3;

export const options = {
  insecureSkipTLSVerify: true,
  systemTags: [],
  summaryTrendStats: ['count'],
  scenarios: { load: load.scenario },
};

const now = () => exec.instance.currentTestRunDuration;
const micros = (ms) => Math.round(ms * 1000);

function kindOf(reason) {
  if (/bad handshake/.test(reason)) return 'status';
  if (/timeout|deadline/.test(reason)) return 'timeout';
  return /dial|lookup|tls|handshake/.test(reason) ? 'connect' : 'read';
}

export default function () {
  const row = { number: exec.vu.idInTest, wall_ms: 0, opened_us: 0, answered_us: 0, last_us: 0, ended_us: 0 };
  Object.assign(row, { sent: 0, told_us: 0, late_us: 0, end: COMPLETE, kind: '', fault: '', trips_us: [] });
  const sentAt = [];
  const told = [];
  let [socket, answered, untold, reason, over, next, deadline] = [null, 0, 0, '', false, 0, 0];

  const text = (number) => `${number} ${told[number]} ${padding}`;

  const end = (how, kind, fault) => {
    if (over) return;
    over = true;
    clearTimeout(next);
    clearTimeout(deadline);
    Object.assign(row, { end: how, kind: kind, fault: fault, ended_us: micros(now()) });
    // when all are over, so that it is no load beside them
    setTimeout(() => console.log(`websocket ${JSON.stringify(row)}`), Math.max(0, load.planned_ms - now()));
    if (answered && how !== CUT) socket.close();
  };

  const send = () => {
    const due = answered + row.sent * load.every_ms;
    told.push(untold);
    untold = 0;
    const at = now();
    sentAt.push(at);
    socket.send(text(row.sent));
    row.sent += 1;
    row.last_us = micros(at);
    row.late_us += micros(Math.max(0, at - due));
    if (row.sent < load.count) next = setTimeout(send, Math.max(0, due + load.every_ms - now()));
  };

  const hear = (event) => {
    const at = now();
    const number = row.trips_us.length;
    if (over) return;
    if (number >= row.sent || event.data !== text(number)) {
      end(CUT, 'body', 'another message came back than was sent');
      socket.close();
      return;
    }
    const trip = micros(at - sentAt[number]);
    row.trips_us.push(trip);
    untold += trip;
    row.told_us += told[number];
    row.last_us = micros(at);
    if (number + 1 === load.count) end(COMPLETE, '', '');
  };

  const open = () => {
    row.wall_ms = Date.now();
    row.opened_us = micros(now());
    deadline = setTimeout(() => end(REFUSED, 'timeout', 'no answer to the handshake'), load.timeout_ms);
    socket = new WebSocket(load.url, null, { headers: load.headers });
    socket.onopen = () => {
      if (over) return;
      clearTimeout(deadline);
      const lasts = (load.count - 1) * load.every_ms + load.timeout_ms;
      deadline = setTimeout(() => end(SILENT, 'timeout', 'a message did not come back'), lasts);
      answered = now();
      row.answered_us = micros(answered);
      send();
    };
    socket.onmessage = hear;
    socket.onerror = (event) => (reason = event.error.replace(/\S+:\d+->\S+:\d+: /, ''));
    socket.onclose = (event) => {
      const fault = reason || `closed with ${event.code || 'no code'}`;
      end(answered ? CUT : REFUSED, answered ? 'read' : kindOf(fault), fault);
    };
  };

  setTimeout(open, Math.max(0, (load.opening_ms * (row.number - 1)) / load.connections - now()));
}

export function handleSummary(data) {
  const count = (name) => (data.metrics[name] ? data.metrics[name].values.count : 0);
  const line = {
    lab_websocket: 1,
    duration_ms: data.state.testRunDurationMs,
    sessions: count('ws_sessions'),
    sent: count('ws_msgs_sent'),
    received: count('ws_msgs_received'),
    received_bytes: count('data_received'),
  };
  return { stdout: JSON.stringify(line) + '\n' };
}
