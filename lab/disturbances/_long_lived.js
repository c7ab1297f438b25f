// Connections that last, each a virtual user's: opened, held for a while, closed, opened anew. A line for all that happens:
//
//     websocket 12 1763764412345 held          its number, when (ms since the epoch), what; `cut`, `refused` with the reason
import exec from 'k6/execution';
import http from 'k6/http';
import { WebSocket } from 'k6/websockets';

const load = JSON.parse(open('./load.json'));
const headers = load.host ? { Host: load.host } : {};
const AGAIN_MS = 1000; // after a cut or a refusal, as real clients wait
const SILENT_MS = 5000; // a server that says something every second has gone

export const options = { insecureSkipTLSVerify: true, systemTags: [], scenarios: load.scenarios };

function teller(kind) {
  const number = exec.scenario.iterationInTest;
  return (what) => console.log(`${kind} ${number} ${Date.now()} ${String(what).replace(/\s+/g, ' ')}`);
}

// What is left of the first one's life: as if all had begun at different times before.
function share(count) {
  return exec.vu.iterationInScenario ? 1 : ((exec.vu.idInTest % count) + 1) / count;
}

export function websocket() {
  const tell = teller('websocket');
  const socket = new WebSocket(load.url.replace(/^http/, 'ws') + '/socket', null, { headers: headers });
  let opened = false;
  let over = false;
  let heard = 0;
  let why = '';
  const timers = [];
  const end = (what) => {
    if (over) return;
    over = true;
    timers.forEach(clearInterval);
    if (what) {
      tell(what);
      setTimeout(() => {}, AGAIN_MS);
    }
    if (opened) socket.close();
  };
  socket.onopen = () => {
    opened = true;
    heard = Date.now();
    tell('held');
    timers.push(setInterval(() => end(''), load.life_ms * share(load.websockets)));
    timers.push(setInterval(() => Date.now() - heard > SILENT_MS && end(`cut silent for ${SILENT_MS} ms`), 1000));
  };
  socket.onmessage = () => (heard = Date.now());
  socket.onerror = (event) => {
    why = event.error;
    if (!opened) end(`refused ${why}`);
  };
  socket.onclose = (event) => end(opened ? `cut ${why || `closed ${event.code || ''}`}` : `refused ${why}`);
}

export function download() {
  const tell = teller('download');
  const skipped = Math.floor(load.page_bytes * (1 - share(load.downloads)));
  const range = skipped ? { Range: `bytes=${skipped}-` } : {};
  const params = { throw: true, redirects: 0, responseType: 'none', timeout: '1h', headers: Object.assign(range, headers) };
  tell('held'); // it may yet be refused: then it was not
  try {
    const status = http.get(`${load.url}/slow/${load.page}`, params).status;
    if (status === 200 || status === 206) return;
    tell(`refused status ${status}`);
  } catch (error) {
    tell(`${/dial|handshake|lookup/.test(String(error)) ? 'refused' : 'cut'} ${error}`);
  }
  setTimeout(() => {}, AGAIN_MS);
}
