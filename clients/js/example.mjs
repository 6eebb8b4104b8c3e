// A game that plays one session: node example.mjs http://127.0.0.1:8000 session-1 100
import { Game, GameError, text } from "./ludus.mjs";

const [url, session, ticks, token, secret] = process.argv.slice(2);
if (ticks === undefined) {
  console.error("usage: node example.mjs URL SESSION TICKS [TOKEN [SECRET]]");
  process.exit(2);
}
try {
  const game = new Game(url, session, { token, secret });
  console.log(`start ${text(await game.start("map 7"))}`);
  for (let i = 0; i < Number(ticks); i++) console.log(`tick ${text(await game.tick(`frame ${i}`))}`);
  console.log(`end ${text(await game.end("won"))}`);
} catch (error) {
  if (!(error instanceof GameError)) throw error;
  console.log(`error ${error.code} ${error.status}`);
  console.error(error.message);
  process.exitCode = 1;
}
