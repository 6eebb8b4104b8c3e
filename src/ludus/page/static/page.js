// Refreshes the view while it is looked at, and posts forms without leaving the page. Both work on the HTML that the
// server makes; there is no state here but what the browser keeps of it: focus, scrolling, what is typed.

const view = document.getElementById("view");
const state = document.getElementById("state");
const message = document.getElementById("message");
const PART = { "X-Ludus-Part": "1" };
const LONGEST_WAIT_S = 15;
let address = view.dataset.live;
let mark = null; // of what is shown: the server sends nothing if it is still the same
let failures = 0;
let timer = 0;
let asked = 0; // counts requests, so that an answer that was overtaken is dropped

// --- one tree becomes another; nodes that stay keep focus, scrolling and what was typed

function become(old, next) {
  if (old.dataset?.keep !== undefined && next.dataset?.keep === old.dataset.keep) return;
  for (const { name } of [...old.attributes]) {
    if (!next.hasAttribute(name) && name !== "open") old.removeAttribute(name);
  }
  for (const { name, value } of next.attributes) {
    if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  const olds = [...old.childNodes];
  const nexts = [...next.childNodes];
  nexts.forEach((wanted, at) => {
    const had = olds[at];
    if (had === undefined) old.append(wanted);
    else if (isSame(had, wanted)) {
      if (had.nodeType === Node.ELEMENT_NODE) become(had, wanted);
      else if (had.data !== wanted.data) had.data = wanted.data;
    } else had.replaceWith(wanted);
  });
  olds.slice(nexts.length).forEach((had) => had.remove());
}

function isSame(one, other) {
  return one.nodeType === other.nodeType && one.nodeName === other.nodeName && (one.id ?? "") === (other.id ?? "");
}

function show(html) {
  const next = view.cloneNode(false);
  const hadFocus = view.contains(document.activeElement);
  const parsed = new DOMParser().parseFromString(html, "text/html");
  next.append(...parsed.body.childNodes);
  become(view, next);
  if (hadFocus && !view.contains(document.activeElement)) view.focus({ preventScroll: true });
  view.dispatchEvent(new Event("refreshed"));
}

// --- refreshing

async function refresh() {
  clearTimeout(timer);
  if (!address || document.hidden) return;
  const number = ++asked;
  try {
    const headers = mark ? { ...PART, "If-None-Match": mark } : PART;
    const answer = await fetch(address, { headers, signal: AbortSignal.timeout(LONGEST_WAIT_S * 1000) });
    if (number !== asked) return;
    if (answer.status === 401) return location.reload();
    if (answer.status >= 400 && answer.status !== 404) throw new Error(`${answer.status}`); // what is shown is old
    if (answer.status !== 304) {
      const html = await answer.text();
      if (number !== asked) return;
      mark = answer.headers.get("ETag");
      if (answer.headers.get("Content-Type")?.startsWith("text/html")) show(html);
    }
    failures = 0;
    say("");
  } catch {
    if (number !== asked) return;
    failures += 1;
    if (failures > 1) say("Not connected: the page's process has ended or is busy. Trying again.");
  }
  const soon = view.querySelector("[data-soon]"); // something is about to change
  const every = soon ? Number(soon.dataset.soon) : Number(view.dataset.every);
  timer = setTimeout(refresh, 1000 * Math.min(LONGEST_WAIT_S, every * 2 ** Math.min(failures, 4)));
}

function say(text) {
  if (state.textContent !== text) state.textContent = text;
}

document.addEventListener("visibilitychange", refresh);
window.addEventListener("pageshow", (event) => event.persisted && refresh()); // back again

// --- forms

document.addEventListener("submit", async (event) => {
  const form = event.target;
  const target = form.getAttribute("action") ?? ""; // `form.action` may be a button of that name
  if (form.getAttribute("method") !== "post" || !target.includes("/do/")) return;
  event.preventDefault();
  const fields = new URLSearchParams(new FormData(form, event.submitter));
  message.hidden = true;
  try {
    const answer = await fetch(target, { method: "POST", headers: PART, body: fields });
    const text = await answer.text();
    if (answer.ok) go(text);
    else complain(text);
  } catch {
    complain("Not connected: nothing was done.");
  }
});

// A form that asks is sent as soon as something is chosen.
document.addEventListener("change", (event) => {
  const form = event.target.form;
  if (form?.dataset.auto === undefined) return;
  const given = [...new FormData(form)].filter(([, value]) => value !== "");
  go(`${form.getAttribute("action")}?${new URLSearchParams(given)}`);
});

function go(next) {
  if (new URL(next, location).pathname !== location.pathname) return location.assign(next);
  if (next !== address) history.replaceState(null, "", next);
  address = next;
  mark = null;
  refresh();
}

function complain(text) {
  message.textContent = text;
  message.hidden = false;
}

// --- the tab of this view may be beside the edge of a phone

document.querySelector("nav [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });

// --- themes

const themes = ["auto", "light", "dark"];
const button = document.getElementById("theme");

function wear(theme) {
  if (theme === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  button.textContent = `Theme: ${theme}`;
}

button.hidden = false;
wear(document.documentElement.dataset.theme ?? "auto");
button.addEventListener("click", () => {
  const now = document.documentElement.dataset.theme ?? "auto";
  const next = themes[(themes.indexOf(now) + 1) % themes.length];
  localStorage.setItem("theme", next);
  wear(next);
});

// --- charts: the values under the pointer, or under the finger

document.addEventListener("pointermove", (event) => {
  const chart = event.target.closest?.("svg.lines");
  for (const readout of document.querySelectorAll(".readout")) {
    if (readout.parentElement !== chart?.parentElement) readout.remove();
  }
  if (!chart) return;
  const box = chart.getBoundingClientRect();
  const x = ((event.clientX - box.left) / box.width) * chart.viewBox.baseVal.width;
  const rows = JSON.parse(chart.dataset.values).map(({ name, colour, at }) => {
    const near = at.reduce((best, one) => (Math.abs(one[0] - x) < Math.abs(best[0] - x) ? one : best));
    const row = document.createElement("div");
    const swatch = document.createElement("span");
    swatch.className = `swatch k${colour}`;
    row.append(swatch, `${name}: ${near[3]} at ${near[2]}`);
    return row;
  });
  let readout = chart.parentElement.querySelector(".readout");
  if (!readout) {
    readout = document.createElement("div");
    readout.className = "readout";
    readout.setAttribute("aria-hidden", "true");
    chart.parentElement.append(readout);
  }
  readout.replaceChildren(...rows.slice(0, 12));
});

// --- keys: an element with data-key is clicked by that key, unless somebody types; arrows walk over a board

const ARROWS = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: 0, ArrowDown: 0 };

document.addEventListener("keydown", (event) => {
  const board = event.target.closest?.(".board");
  if (!board || !(event.key in ARROWS)) return;
  const cells = [...board.querySelectorAll(".cell")];
  const width = Number(board.dataset.width);
  const step = ARROWS[event.key] || (event.key === "ArrowUp" ? -width : width);
  event.preventDefault();
  cells[cells.indexOf(event.target) + step]?.focus();
});

document.addEventListener("click", (event) => {
  if (event.target.closest?.("[aria-disabled=true]")) event.preventDefault();
});

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.altKey || event.metaKey || event.target.matches("input, select, textarea")) return;
  const wanted = document.querySelector(`[data-key="${CSS.escape(event.key)}"]:not(:disabled, [aria-disabled=true])`);
  if (wanted) {
    event.preventDefault();
    wanted.click();
  }
});

refresh();
