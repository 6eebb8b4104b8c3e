// A game's side of Ludus' protocol (docs/protocol.md) for Node >= 18 and for browsers: fetch and WebCrypto, nothing else.
//
//     const game = new Game("http://127.0.0.1:8000", "session-1");
//     await game.start("map 7");
//     const action = await game.tick(observation);      // a Uint8Array; text(action) makes a string of it
//     await game.end("won");
//
// Steps are numbered, so that one whose connection broke is sent again and never runs twice. What goes wrong is thrown as
// GameError, whose `code` is the protocol's, or `unreachable` (the step was not run), or `outcome_unknown` (the connection
// broke, and the step was not or cannot be repeated; the next call is a step of its own all the same); `bad_request` with
// the status 0 is an option that cannot be sent as a header; `answer_too_large` is an answer of more than maxAnswerBytes.
// One step at a time: await each.

const NOT_RUN = new Set(["overloaded", "shutting_down", "timeout", "replayed"]);
const AFTER_DEADLINE_MS = 250; // the server keeps deadlines itself; after this it hangs
const RAN = new Set(["actor_failed", "invalid_observation", "deadline_exceeded"]);
const NOT_SENT = new Set(["ECONNREFUSED", "ENOTFOUND", "EAI_AGAIN", "EHOSTUNREACH", "ENETUNREACH"]);
const MAX_PAUSE_MS = 5000;
const IS_NODE = globalThis.process?.versions?.node !== undefined;

export class GameError extends Error {
  constructor(code, status, detail, members = {}, options = undefined) {
    super(`${code} (${status}): ${detail}`, options);
    this.name = "GameError";
    this.code = code;
    this.status = status; // of HTTP; 0 if there was no answer
    this.detail = detail;
    this.members = members; // further members of the problem
  }
}

export const text = (bytes) => new TextDecoder().decode(bytes);

export class Game {
  #url; #session; #options; #number = 0; #signedMs = 0; #versions = {}; #hmac = null;
  #doubted = null; // the first number that may be free though a step was sent by it
  #isOpen = false; // whether #number itself is such a one: the present step's, or the last one's

  // options: run, numbered, timeoutMs, retries, maxAnswerBytes, token, secret, key; see docs/clients.md.
  constructor(url, session, options = {}) {
    this.#url = url.replace(/\/+$/, "").replace(/\/step$/, "") + "/step";
    this.#session = session;
    this.#options = { numbered: true, timeoutMs: 10000, retries: 5, maxAnswerBytes: 64 * 1024 * 1024, key: "game", ...options };
    const { run, token, key } = this.#options;
    for (const [name, value] of Object.entries({ session, run, token, key })) checkHeader(name, value);
  }

  get session() { return this.#session; }

  // The model versions that the session plays, by name, as of the last answer.
  get versions() { return { ...this.#versions }; }

  // version: a number, a tag, "latest" or "follow", of `model` or of all models.
  async start(data = "", { model, version } = {}) {
    this.#number = 0;
    this.#settle();
    this.#versions = {};
    checkHeader("model", model);
    checkHeader("version", version);
    return this.#step("start", data, { run: this.#options.run, model, version });
  }

  // data: a string, an ArrayBuffer, or a view of one (Uint8Array, Float32Array, DataView, …), whose bytes are sent as they
  // are. deadlineMs: how long the game waits for this answer.
  async tick(data, { deadlineMs } = {}) { return this.#step("tick", data, { deadline_ms: deadlineMs }); }

  async end(data = "") { return this.#step("end", data, {}); }

  // A tick of no session, on the actor that all such ticks share.
  async stateless(data, { deadlineMs } = {}) { return this.#step(null, data, { deadline_ms: deadlineMs }); }

  async #step(kind, data, extras) {
    const body = bytesOf(data);
    const mayRepeat = this.#options.numbered && kind !== null;
    const until = extras.deadline_ms ? Date.now() + extras.deadline_ms + AFTER_DEADLINE_MS : Infinity;
    let mayHaveRun = false;
    if (kind !== null && this.#isOpen) {
      this.#number++; // another step than the last: not to be taken for a repetition of it
      this.#isOpen = false;
    }
    let pauseMs = 0; // the first time at once: a connection that was idle for too long is nobody's fault
    for (let left = this.#options.retries; ; left--, pauseMs = Math.min(pauseMs * 2 || 100, 1000)) {
      let waitMs = pauseMs;
      try {
        const response = await this.#send(kind, body, extras, until);
        const answer = await this.#read(response);
        if (answer === null) {
          if (kind !== null) this.#lose();
          const detail = `the answer has more than ${this.#options.maxAnswerBytes} bytes; maxAnswerBytes is the limit`;
          throw new GameError("answer_too_large", response.status, detail);
        }
        if (response.status === 200) {
          if (kind !== null) this.#ran();
          this.#keepVersions(response.headers.get("version"));
          return answer;
        }
        const error = problem(response.status, answer);
        if (RAN.has(error.code) && (kind === "tick" || kind === "end")) this.#ran();
        if (error.code === "server_failed" && kind !== null) this.#lose(); // it may have run
        if (kind !== null && this.#finds(error)) {
          left++; // this sending does not count
          continue;
        }
        if (!NOT_RUN.has(error.code) || left <= 0) throw error;
        const after = 1000 * (parseInt(response.headers.get("retry-after") ?? "0", 10) || 0);
        waitMs = Math.min(Math.max(waitMs, after), MAX_PAUSE_MS);
        if (Date.now() + waitMs >= until) throw error;
      } catch (error) {
        if (error instanceof GameError) throw error;
        const wasSent = !NOT_SENT.has(error.cause?.code);
        const why = `${error.message}${error.cause ? `: ${error.cause.message || error.cause.code}` : ""}`;
        mayHaveRun ||= wasSent;
        if (wasSent && kind !== null) this.#lose();
        if (Date.now() + waitMs >= until) {
          throw new GameError("deadline_exceeded", 504, `no answer by the deadline: ${why}`, {}, { cause: error });
        }
        if (wasSent && !mayRepeat) throw new GameError("outcome_unknown", 0, why, {}, { cause: error });
        if (left <= 0) throw new GameError(mayHaveRun ? "outcome_unknown" : "unreachable", 0, why, {}, { cause: error });
      }
      await new Promise((resolve) => setTimeout(resolve, waitMs));
    }
  }

  // The server has said which numbers are taken.
  #settle() {
    this.#doubted = null;
    this.#isOpen = false;
  }

  #ran() {
    this.#number++;
    this.#settle();
  }

  // The present step was sent, and it is not known whether it ran: its number may be taken or free.
  #lose() {
    this.#isOpen = true;
    this.#doubted ??= this.#number;
  }

  // Whether the problem tells which number was free; the step has it now.
  #finds(error) {
    const { expected } = error.members;
    if (error.code !== "out_of_order" || this.#doubted === null) return false;
    if (!(this.#doubted <= expected && expected < this.#number)) return false;
    this.#number = expected;
    this.#settle();
    return true;
  }

  async #send(kind, body, extras, until) {
    const headers = {};
    if (kind !== null) {
      headers.session = this.#session;
      headers.step_kind = kind;
      if (this.#options.numbered) headers.step = String(this.#number);
    }
    for (const [name, value] of Object.entries(extras)) {
      if (value !== undefined && value !== null) headers[name] = String(value);
    }
    if (IS_NODE) headers["accept-encoding"] = "identity"; // a browser chooses by itself, and unpacks as it is read
    if (this.#options.token) headers.authorization = `Bearer ${this.#options.token}`;
    if (this.#options.secret) Object.assign(headers, await this.#signature(headers, body));
    const signal = AbortSignal.timeout(Math.max(1, Math.min(this.#options.timeoutMs, until - Date.now())));
    return fetch(this.#url, { method: "POST", headers, body, signal, redirect: "manual" });
  }

  // The answer's bytes, unpacked; null if there are too many. No more than that is ever held: a server may lie about it.
  async #read(response) {
    const parts = [];
    let size = 0;
    if (response.body === null) return new Uint8Array(0);
    if (IS_NODE && response.headers.has("content-encoding")) {
      // Not asked for. Node unpacks ahead of what is read here, and a few bytes may stand for gigabytes.
      await response.body.cancel();
      return null;
    }
    const reader = response.body.getReader();
    for (;;) {
      const { done, value } = await reader.read();
      if (done) break;
      size += value.length;
      if (size > this.#options.maxAnswerBytes) {
        await reader.cancel();
        return null;
      }
      parts.push(value);
    }
    if (parts.length === 1) return parts[0];
    const whole = new Uint8Array(size);
    let at = 0;
    for (const part of parts) {
      whole.set(part, at);
      at += part.length;
    }
    return whole;
  }

  async #signature(headers, body) {
    const { subtle } = globalThis.crypto ?? (await import("node:crypto")).webcrypto;
    const encode = (string) => new TextEncoder().encode(string);
    const { key, secret } = this.#options;
    this.#hmac ??= await subtle.importKey("raw", encode(secret), { name: "HMAC", hash: "SHA-256" }, false, ["sign"]);
    const time = (this.#signedMs = Math.max(Date.now(), this.#signedMs + 1));
    const digest = hex(await subtle.digest("SHA-256", body));
    const parts = [key, time, headers.session ?? "", headers.step_kind ?? "", headers.step ?? "", digest];
    for (const name of ["run", "model", "version", "deadline_ms"]) {
      if (name in headers) parts.push(`${name}:${headers[name]}`);
    }
    const token = hex(await subtle.sign("HMAC", this.#hmac, encode(parts.join("\n"))));
    return { key, time: String(time), token };
  }

  #keepVersions(header) {
    if (!header) return;
    const pairs = header.split(",").map((part) => [part.slice(0, part.lastIndexOf("=")), part.slice(part.lastIndexOf("=") + 1)]);
    this.#versions = Object.fromEntries(pairs.map(([model, number]) => [model.trim(), Number(number)]));
  }
}

// The very bytes of what a game sends, copied: it may use its buffer for the next observation.
function bytesOf(data) {
  if (typeof data === "string") return new TextEncoder().encode(data);
  if (ArrayBuffer.isView(data)) return new Uint8Array(data.buffer, data.byteOffset, data.byteLength).slice();
  if (Object.prototype.toString.call(data) === "[object ArrayBuffer]") return new Uint8Array(data).slice();
  throw new TypeError("a step takes a string, an ArrayBuffer or a view of one; JSON.stringify makes a string");
}

function checkHeader(name, value) {
  if (value === undefined || value === null || /^([!-~]([ -~]*[!-~])?)?$/.test(value)) return;
  const detail = `this ${name} cannot be sent: a header is printable ASCII without blanks around it; choose another ${name}`;
  throw new GameError("bad_request", 0, detail);
}

function problem(status, body) {
  try {
    const { code, detail, type, title, status: _status, ...members } = JSON.parse(text(body));
    if (typeof code === "string") return new GameError(code, status, detail, members);
  } catch {
    // no problem document; what came is reported as it is
  }
  return new GameError("http", status, text(body).slice(0, 200));
}

function hex(buffer) {
  return Array.from(new Uint8Array(buffer), (byte) => byte.toString(16).padStart(2, "0")).join("");
}
