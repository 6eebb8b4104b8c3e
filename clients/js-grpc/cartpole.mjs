// CartPole, played through Ludus by gRPC: node cartpole.mjs 127.0.0.1:8001 session-1 [MAX_STEPS [PROTO_ROOT]]
//
//     npm install && ludus serve TRIAL --grpc-port 8001
//
// The token, if the server has one, is in LUDUS_TOKEN. What is sent are CartPole's four numbers as JSON, and what comes
// back is {"action": 0} or {"action": 1}, as from `ludus serve` of a trial of CartPole-v1.
import { Game, GameError } from "./ludus.mjs";

const [GRAVITY, CART, POLE, HALF_LENGTH, FORCE, DT] = [9.8, 1.0, 0.1, 0.5, 10.0, 0.02];
const MASS = CART + POLE;

// One step of the classic equations (Barto, Sutton and Anderson), as Gymnasium has them.
function move([x, v, angle, turn], action) {
  const force = action === 1 ? FORCE : -FORCE;
  const [sin, cos] = [Math.sin(angle), Math.cos(angle)];
  const rest = (force + POLE * HALF_LENGTH * turn * turn * sin) / MASS;
  const speeding = (GRAVITY * sin - cos * rest) / (HALF_LENGTH * (4 / 3 - (POLE * cos * cos) / MASS));
  const acceleration = rest - (POLE * HALF_LENGTH * speeding * cos) / MASS;
  return [x + DT * v, v + DT * acceleration, angle + DT * turn, turn + DT * speeding];
}

const isOver = ([x, , angle]) => Math.abs(x) > 2.4 || Math.abs(angle) > (12 * Math.PI) / 180;

const [target, session, most = "500", protoRoot] = process.argv.slice(2);
if (session === undefined) {
  console.error("usage: node cartpole.mjs HOST:PORT SESSION [MAX_STEPS [PROTO_ROOT]]");
  process.exit(2);
}
const game = new Game(target, session, { token: process.env.LUDUS_TOKEN, ...(protoRoot && { protoRoot }) });
try {
  let state = [0.01, -0.02, 0.03, 0.04];
  let steps = 0;
  await game.start();
  while (steps < Number(most) && !isOver(state)) {
    state = move(state, JSON.parse(await game.tick(JSON.stringify(state))).action);
    steps += 1;
  }
  await game.end(JSON.stringify({ reward: 1.0, terminated: isOver(state) }));
  console.log(`balanced for ${steps} steps`);
} catch (error) {
  if (!(error instanceof GameError)) throw error;
  console.log(`error ${error.code}`);
  console.error(error.message);
  process.exitCode = 1;
} finally {
  game.close();
}
