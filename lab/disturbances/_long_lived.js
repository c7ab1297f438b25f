// Long-lived connections, one per virtual user: opened, held for a while, closed, opened anew. Every event is a line:
//
//     websocket 12 1763764412345 held          number, time (ms since the epoch), event: `held`, or `cut` or `refused` and why
import exec from 'k6/execution';
import http from 'k6/http';
import { WebSocket } from 'k6/websockets';

const load = JSON.parse(open('./load.json'));
const headers = load.host ? { Host: load.host } : {};
const AGAIN_MS = 1000; // the wait after a cut or a refusal, as real clients wait
const SILENT_MS = 5000; // the server sends a message every second: after such a silence it has gone

export const options = { insecureSkipTLSVerify: true, systemTags: [], scenarios: load.scenarios };

function logger(kind) {
  const number = exec.scenario.iterationInTest;
  return (event) => console.log(`${kind} ${number} ${Date.now()} ${String(event).replace(/\s+/g, ' ')}`);
}

// The share of its life that a connection has left. First connections are staggered, as if they had begun at different times.
function share(count) {
  return exec.vu.iterationInScenario ? 1 : ((exec.vu.idInTest % count) + 1) / count;
}

export function websocket() {
  const log = logger('websocket');
  const socket = new WebSocket(load.url.replace(/^http/, 'ws') + '/socket', null, { headers: headers });
  let opened = false;
  let over = false;
  let heard = 0;
  let reason = '';
  const timers = [];
  const end = (event) => {
    if (over) return;
    over = true;
    timers.forEach(clearInterval);
    if (event) {
      log(event);
      setTimeout(() => {}, AGAIN_MS);
    }
    if (opened) socket.close();
  };
  socket.onopen = () => {
    opened = true;
    heard = Date.now();
    log('held');
    timers.push(setInterval(() => end(''), load.life_ms * share(load.websockets)));
    timers.push(setInterval(() => Date.now() - heard > SILENT_MS && end(`cut silent for ${SILENT_MS} ms`), 1000));
  };
  socket.onmessage = () => (heard = Date.now());
  socket.onerror = (event) => {
    reason = event.error;
    if (!opened) end(`refused ${reason}`);
  };
  socket.onclose = (event) => end(opened ? `cut ${reason || `closed ${event.code || ''}`}` : `refused ${reason}`);
}

export function download() {
  const log = logger('download');
  const skipped = Math.floor(load.page_bytes * (1 - share(load.downloads)));
  const range = skipped ? { Range: `bytes=${skipped}-` } : {};
  const params = { throw: true, redirects: 0, responseType: 'none', timeout: '1h', headers: Object.assign(range, headers) };
  log('held'); // if it is refused after all, the reader of the log drops this line
  try {
    const status = http.get(`${load.url}/slow/${load.page}`, params).status;
    if (status === 200 || status === 206) return;
    log(`refused status ${status}`);
  } catch (error) {
    log(`${/dial|handshake|lookup/.test(String(error)) ? 'refused' : 'cut'} ${error}`);
  }
  setTimeout(() => {}, AGAIN_MS);
}
