// Looks at /status once a second and shows it. One look at a time; a gateway that does not answer is said so.
import { duration } from "./numbers.js";
import { rolesOf } from "./view.js";

const PAUSE_MS = 1000;
const PATIENCE_MS = 10000;
const KEY = "trimtab-client-key";

const summary = document.getElementById("summary");
const roles = document.getElementById("roles");
const form = document.getElementById("key-form");
let before = null;

class KeyNeeded extends Error {}

async function look() {
  const key = sessionStorage.getItem(KEY);
  const headers = key === null ? {} : { authorization: `Bearer ${key}` };
  const answer = await fetch("status", { headers, cache: "no-store", signal: AbortSignal.timeout(PATIENCE_MS) });
  if (answer.status === 401 || answer.status === 403) throw new KeyNeeded();
  if (!answer.ok) throw new Error(`/status answered ${answer.status}`);
  return answer.json();
}

function show(now) {
  roles.replaceChildren(...rolesOf(now, before));
  summary.textContent = `${now.version} · ${now.ready ? "ready" : "not ready"} · up ${duration(now.uptime_s)}`;
  before = now;
}

function say({ text, isLost }) {
  summary.classList.toggle("lost", isLost);
  document.body.classList.toggle("stale", isLost);
  if (text !== null) summary.textContent = text;
}

async function run() {
  try {
    show(await look());
    say({ text: null, isLost: false });
  } catch (error) {
    if (error instanceof KeyNeeded) {
      say({ text: sessionStorage.getItem(KEY) === null ? "a key is needed" : "this is not the key", isLost: true });
      form.hidden = false;
      return;
    }
    say({ text: `the gateway does not answer: ${error.message}`, isLost: true });
  }
  setTimeout(run, PAUSE_MS);
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem(KEY, document.getElementById("key").value);
  form.hidden = true;
  run();
});

run();
