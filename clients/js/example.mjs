// A game that plays one session: node example.mjs http://127.0.0.1:8000 session-1 100
//
// It sends four numbers with each tick, the observation of CartPole, so that it can be tried against
// `ludus serve` of a trial of CartPole-v1, which answers {"action": 0} or {"action": 1}. Your game sends its own.
//
// All users of a machine can read the arguments of a process. So token and secret may also come from the environment,
// as for the server: LUDUS_TOKEN and LUDUS_SECRET, or LUDUS_TOKEN_FILE and LUDUS_SECRET_FILE, which name files.
import { readFileSync } from "node:fs";
import { Game, GameError, text } from "./ludus.mjs";

// What a variable, or else the file that variable_FILE names, holds; undefined if neither is set.
function fromEnvironment(variable) {
  const value = process.env[variable];
  const path = process.env[`${variable}_FILE`];
  if (value && path) throw new Error(`both ${variable} and ${variable}_FILE are set`);
  if (!path) return value || undefined;
  const line = readFileSync(path, "utf8").replace(/\r?\n$/, "");
  if (!line || line.includes("\n")) throw new Error(`${path} must have one line, the value of ${variable}`);
  return line;
}

const [url, session, ticks, ...access] = process.argv.slice(2);
if (ticks === undefined) {
  console.error("usage: node example.mjs URL SESSION TICKS [TOKEN [SECRET]]");
  process.exit(2);
}
let token, secret;
try {
  token = access[0] ?? fromEnvironment("LUDUS_TOKEN");
  secret = access[1] ?? fromEnvironment("LUDUS_SECRET");
} catch (error) {
  console.error(error.message);
  process.exit(2);
}
try {
  const game = new Game(url, session, { token, secret });
  console.log(`start ${text(await game.start())}`);
  for (let i = 0; i < Number(ticks); i++) console.log(`tick ${text(await game.tick(`[0.01, -0.02, 0.03, ${i}]`))}`);
  console.log(`end ${text(await game.end('{"reward": 1.0, "terminated": true}'))}`);
} catch (error) {
  if (!(error instanceof GameError)) throw error;
  console.log(`error ${error.code} ${error.status}`);
  console.error(error.message);
  process.exitCode = 1;
}
