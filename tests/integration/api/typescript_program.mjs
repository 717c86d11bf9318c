// A program of users in Node: it asks an agent, follows the answer over a broken connection, and answers a question.
// It prints a line for each run that it has begun, so that the test plays the agent, and in the end what it has.
import { NovaClient, NovaError } from "nova-workers";

const [, , url, key, brokenUrl] = process.argv;
const print = (value) => process.stdout.write(`${JSON.stringify(value)}\n`);
const nova = new NovaClient({ baseUrl: url, apiKey: key });

const asked = nova.ask({ message: "Weather?", agent_id: "nova" }, { idempotencyKey: "weather-1" });
const waiting = await asked;
const answered = await nova.answer(waiting.id, { text: "Oslo" });
const ended = await nova.wait(waiting.id);

const events = [];
for await (const { event } of nova.stream({ message: "More?", thread_id: ended.thread_id })) {
  events.push(event.type);
}

const again = await nova.ask({ message: "Weather?", agent_id: "nova" }, { idempotencyKey: "weather-1" });
const { data: agents } = await nova.api.GET("/v1/agents");
const error = await nova.run("run_01ARZ3NDEKTSV4RRFFQ69G5FAV").catch((problem) => problem);

const broken = new NovaClient({ baseUrl: brokenUrl, apiKey: key });
const pieces = [];
for await (const { cursor, event } of broken.events("run_1")) pieces.push([cursor, event.text ?? event.type]);
const sent = await broken.send({ message: "Hello" });
const changed = [];
for await (const { cursor, event } of broken.changes({ subjects: ["run"] })) {
  changed.push([cursor, event.id ?? event.type]);
  if (changed.length === 2) break;
}

print({
  question: waiting.waits[0].request.question,
  answered: answered.id === waiting.id,
  text: ended.text,
  events,
  again: again.id === ended.id,
  agents: agents.items.map((agent) => agent.id),
  error: [error instanceof NovaError, error.code, error.status],
  pieces,
  sent: sent.id,
  changed,
});
