// The client of the protocol's own SDK, as a front end uses it. It prints a line for each run that has begun, so that
// the test plays the agent, and in the end what it has.
import { createRequire } from "node:module";

const [, , modules, url, key] = process.argv;
const { HttpAgent } = createRequire(modules)("@ag-ui/client");
const print = (value) => process.stdout.write(`${JSON.stringify(value)}\n`);
const begun = { onRunStartedEvent: ({ event }) => print({ begun: event.protocolVersion }) };
const connect = (more) =>
  new HttpAgent({ url, headers: { Authorization: `Bearer ${key}` }, threadId: "thread of the SDK", ...more });
const say = (agent, id, content) => agent.addMessage({ id, role: "user", content });

const agent = connect({ initialState: { plan: [] } });
const tools = [{ name: "ask", description: "Asks the page.", parameters: { type: "object" } }];

say(agent, "u1", "Weather?");
await agent.runAgent({ runId: "run-1", tools }, begun);
const call = agent.messages.at(-1).toolCalls[0];
agent.addMessage({ id: "t1", role: "tool", toolCallId: call.id, content: "rain" });
await agent.runAgent({ runId: "run-2", tools }, begun);

say(agent, "u2", "Clean up.");
await agent.runAgent({ runId: "run-3" }, begun);
const [interrupt] = agent.pendingInterrupts;
const resume = [{ interruptId: interrupt.id, status: "resolved", payload: { answer: "b" } }];
await agent.runAgent({ runId: "run-4", resume }, begun);

const later = connect({});
await later.runAgent({ runId: "load" }, begun);
const refused = await connect({ url: `${url}-none` }).runAgent({ runId: "none" }).catch((error) => error.payload);

print({ messages: agent.messages, later: later.messages, states: [agent.state, later.state], interrupt, refused });
