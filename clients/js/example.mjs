// A game that plays one session: node example.mjs http://127.0.0.1:8000 session-1 100
//
// It sends four numbers with each tick, the observation of CartPole, so that it can be tried against
// `ludus serve` of a trial of CartPole-v1, which answers {"action": 0} or {"action": 1}. Your game sends its own.
import { Game, GameError, text } from "./ludus.mjs";

const [url, session, ticks, token, secret] = process.argv.slice(2);
if (ticks === undefined) {
  console.error("usage: node example.mjs URL SESSION TICKS [TOKEN [SECRET]]");
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
