// A game's side of Ludus' protocol (docs/protocol.md) over gRPC, for Node >= 18, on @grpc/grpc-js.
//
//     const game = new Game("127.0.0.1:8001", "session-1", { token });
//     await game.start("map 7");
//     const action = await game.tick(observation);      // a Buffer
//     await game.end("won");
//     game.close();
//
// Steps go by one stream. They are numbered, so that one whose stream broke is sent again and never runs twice. What goes
// wrong is thrown as GameError, whose `code` is the protocol's, or `unreachable`, `unanswered`. One step at a time: await
// each. Nothing is generated: the messages are read from src/ludus/grpc/protos/game.proto, below `protoRoot`.
import { fileURLToPath } from "node:url";
import grpc from "@grpc/grpc-js";
import protoLoader from "@grpc/proto-loader";

const PROTO_ROOT = fileURLToPath(new URL("../../src", import.meta.url));
const NOT_RUN = new Set(["overloaded", "shutting_down"]);
const RAN = new Set(["actor_failed", "invalid_observation", "deadline_exceeded"]);
const BROKEN = new Set([grpc.status.UNAVAILABLE, grpc.status.CANCELLED]);

export class GameError extends Error {
  constructor(code, detail, members = {}) {
    super(`${code}: ${detail}`);
    this.name = "GameError";
    this.code = code;
    this.detail = detail;
    this.members = members; // expected, id
  }
}

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

export class Game {
  #client; #metadata = new grpc.Metadata(); #session; #options; #number = 0; #stream = null; #waiting = null; #versions = {};

  // options: token, run, retries, timeoutMs, protoRoot, credentials (of TLS: grpc.credentials.createSsl()).
  constructor(target, session, options = {}) {
    this.#options = { retries: 5, timeoutMs: 10000, protoRoot: PROTO_ROOT, ...options };
    this.#session = session;
    const loaded = protoLoader.loadSync("ludus/grpc/protos/game.proto", {
      includeDirs: [this.#options.protoRoot], keepCase: true, longs: Number, enums: String, oneofs: true,
    });
    const { GameService } = grpc.loadPackageDefinition(loaded).ludus.game;
    this.#client = new GameService(target, this.#options.credentials ?? grpc.credentials.createInsecure());
    if (this.#options.token) this.#metadata.set("authorization", `Bearer ${this.#options.token}`);
  }

  get versions() { return { ...this.#versions }; }

  // version: a number, a tag, "latest" or "follow", of `model` or of all models.
  async start(data = "", { model, version } = {}) {
    this.#number = 0;
    return this.#step("START", data, { run: this.#options.run, model, version });
  }

  async tick(data, { deadlineMs } = {}) { return this.#step("TICK", data, { deadline_ms: deadlineMs }); }

  async end(data = "") { return this.#step("END", data, {}); }

  close() {
    this.#cut();
    this.#client.close();
  }

  async #step(kind, data, fields) {
    const given = Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined));
    const request = { session: this.#session, kind, step: this.#number, data: Buffer.from(data), ...given };
    for (let left = this.#options.retries; ; left--) {
      let reply;
      try {
        reply = await this.#exchange(request);
      } catch (error) {
        this.#cut();
        if (!BROKEN.has(error.code)) throw problemOf(error) ?? error;
        if (left <= 0) throw new GameError("unreachable", error.details ?? error.message);
        await pause(100);
        continue;
      }
      const problem = reply.problem;
      if (!problem) {
        this.#number += 1;
        this.#versions = { ...this.#versions, ...reply.versions };
        return reply.data;
      }
      if (RAN.has(problem.code)) this.#number += 1;
      if (!NOT_RUN.has(problem.code) || left <= 0) {
        throw new GameError(problem.code, problem.detail, { expected: problem.expected, id: problem.id });
      }
      await pause(1000 * problem.retry_after_s);
    }
  }

  #exchange(request) {
    return new Promise((resolve, reject) => {
      const stream = (this.#stream ??= this.#open());
      const timer = setTimeout(() => {
        this.#waiting = null;
        reject(Object.assign(new Error("no answer in time"), { code: grpc.status.CANCELLED }));
      }, this.#options.timeoutMs);
      this.#waiting = (error, reply) => {
        clearTimeout(timer);
        this.#waiting = null;
        error ? reject(error) : resolve(reply);
      };
      stream.write(request);
    });
  }

  #open() {
    const stream = this.#client.Play(this.#metadata);
    stream.on("data", (reply) => { if (stream === this.#stream) this.#waiting?.(null, reply); });
    stream.on("error", (error) => { if (stream === this.#stream) this.#fail(error); });
    stream.on("end", () => { if (stream === this.#stream) this.#fail(Object.assign(new Error("ended"), { code: grpc.status.UNAVAILABLE })); });
    return stream;
  }

  #fail(error) {
    this.#stream = null;
    this.#waiting?.(error);
  }

  #cut() {
    const stream = this.#stream;
    this.#stream = null;
    stream?.cancel();
  }
}

// What the trailing metadata of a call says, if it says anything.
function problemOf(error) {
  const [code] = error.metadata?.get("ludus-code") ?? [];
  return code && new GameError(code, error.details);
}
