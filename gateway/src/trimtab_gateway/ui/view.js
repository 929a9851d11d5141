// A status document as elements. Texts are set as text: nothing that a client or an engine says becomes markup.
import { rate, rounded, sum, variation } from "./numbers.js";

const MOOD = {
  ready: "good", updating: "calm", draining: "calm", sleeping: "calm", paused: "calm", starting: "warn",
  pending_version: "warn", unavailable: "warn", tainted: "bad", down: "bad", failed: "bad", closed: "bad",
};

function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

function stateOf(name) {
  return element("span", { class: `state ${MOOD[name] ?? "warn"}` }, name.replaceAll("_", " "));
}

function fact(label, value) {
  return element("li", {}, `${label} `, element("b", {}, String(value)));
}

function percent(share) {
  return `${Math.max(0, Math.min(100, 100 * share)).toFixed(1)}%`;
}

function engineRow(engine, heaviest, now) {
  const load = engine.outstanding / engine.capacity;
  const bar = element("div", {});
  bar.style.width = percent(heaviest > 0 ? load / heaviest : 0);
  const track = element("div", { class: "track", role: "img", "aria-label": `load ${rounded(load)}` }, bar);
  const version = engine.weight_version ?? "–";
  return element(
    "tr", {},
    element("td", { title: engine.base_url }, engine.engine_id),
    element("td", {}, stateOf(engine.state)),
    element("td", { class: "load" }, track),
    element("td", { class: "number" }, `${engine.outstanding} / ${engine.capacity}`),
    element("td", { class: "number" }, String(engine.sessions)),
    element("td", { class: "number" }, rounded(now(engine.engine_id))),
    element("td", { class: "number" }, String(version)),
  );
}

const COLUMNS = ["engine", "state", "load", "running / capacity", "sessions", "tokens/s", "weights"];

function engineTable(engines, tokensPerSecond) {
  const heaviest = Math.max(...engines.map((each) => each.outstanding / each.capacity), 1e-9);
  const titles = COLUMNS.map((title, index) => element("th", { scope: "col", class: index > 2 ? "number" : "" }, title));
  return element(
    "table", {},
    element("thead", {}, element("tr", {}, ...titles)),
    element("tbody", {}, ...engines.map((each) => engineRow(each, heaviest, tokensPerSecond))),
  );
}

/** Engines that the manager should have and the router does not, and what the manager does now. */
function missing(model) {
  if (!model.manager) return [];
  const present = new Set(model.engines.map((each) => each.engine_id));
  const found = model.manager.engines
    .filter((each) => !present.has(each.engine_id))
    .map(({ engine_id, generation, state, reason }) => {
      const why = reason === null ? "" : `: ${reason.trim().split("\n")[0]}`;
      return `engine ${engine_id} (generation ${generation}) is ${state}${why}`;
    });
  if (model.manager.changing !== null) found.push(`in progress: ${model.manager.changing}`);
  return found;
}

function notices(model) {
  const found = [];
  if (model.update !== null) {
    const { update_id, kind, to_version, phase, outstanding } = model.update;
    const aim = kind === "weights" ? `update to ${to_version ?? "a new version"}` : kind;
    found.push(`${aim} (${update_id}): ${phase}, ${outstanding} running`);
  }
  for (const owner of model.owners) {
    if (owner.fences.length) found.push(`owner ${owner.owner} is fenced: ${owner.fences.join(", ")}`);
  }
  if (model.failure !== null) found.push(`failed: ${model.failure}`);
  found.push(...missing(model));
  return found.map((text) => element("p", { class: "notice" }, text));
}

function modelCard(name, model, growth) {
  const waiting = sum(model.waiters);
  const spread = variation(model.engines);
  const card = element(
    "section", { class: "model", "aria-label": name },
    element("div", { class: "head" }, element("h3", {}, name), stateOf(model.state)),
    element(
      "ul", { class: "facts" },
      fact("weight version", model.weight_version ?? "–"),
      fact("running", model.outstanding),
      fact("waiting", waiting),
      fact("sessions", model.sessions),
      fact("requests/s", rounded(growth((each) => each.leases.settled))),
      fact("tokens/s", rounded(growth((each) => each.output_tokens))),
      fact("CV of tokens", spread === null ? "–" : spread.toFixed(3)),
    ),
    ...notices(model),
  );
  const perEngine = (id) => growth((each) => each.engines.find((engine) => engine.engine_id === id)?.output_tokens ?? 0);
  card.append(model.engines.length ? engineTable(model.engines, perEngine) : element("p", {}, "no engine yet"));
  return card;
}

/** The elements of all roles; `before` is the document of the look before, or null. */
export function rolesOf(now, before) {
  return Object.entries(now.roles).map(([roleName, role]) => {
    const cards = Object.entries(role.models).map(([name, model]) => {
      const growth = (read) =>
        rate(now, before, (status) => {
          const found = status.roles[roleName]?.models[name];
          return found === undefined ? 0 : read(found);
        });
      return modelCard(name, model, growth);
    });
    const title = `${roleName} · topology ${role.topology_revision}`;
    return element("section", { "aria-label": roleName }, element("h2", {}, title), ...cards);
  });
}
