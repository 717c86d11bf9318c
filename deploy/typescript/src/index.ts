/** Client of the HTTP API of Nova Workers. */

import createClient, { type Client } from "openapi-fetch";
import type { components, paths } from "./api.js";
import {
  follow,
  followChanges,
  isLast,
  read,
  type ChangeOptions,
  type Followed,
  type FollowedChange,
  type FollowOptions,
} from "./streams.js";
import { delayMs, idempotency, isTemporary, sleep, Transport, type NovaOptions } from "./transport.js";

export type { components, operations, paths } from "./api.js";
export { NovaError, type Problem } from "./errors.js";
export type {
  ChangeEvent,
  ChangeOptions,
  Followed,
  FollowedChange,
  FollowOptions,
  RunEvent,
} from "./streams.js";
export type { NovaOptions } from "./transport.js";

type Schemas = components["schemas"];

/** A message: to an agent (`agent_id`), on a thread (`thread_id`), or to the default agent. */
export type Submission = Schemas["StatelessRunCreate"];
/** A run: one message, and the work on its answer. */
export type Run = Schemas["RunView"];
/** The answer to a question, or the decision on a call. */
export type Answer = Schemas["RunAnswer"];
/** Results of tools that the caller of a run executes. */
export type ToolResults = Schemas["ToolResults"];

/** How to send a message. */
export interface SendOptions {
  /** Names this message: sent again with it, it is the same run. Made if it is missing. */
  idempotencyKey?: string;
  signal?: AbortSignal;
}

/** A client. It holds no connection: one may serve a whole program. */
export class NovaClient {
  /** Every operation of the API by its method and path, with its types. Errors are thrown as `NovaError`. */
  readonly api: Client<paths>;
  private readonly transport: Transport;

  constructor(options: NovaOptions) {
    this.transport = new Transport(options);
    this.api = createClient<paths>({ baseUrl: this.transport.baseUrl, fetch: this.transport.fetch });
  }

  /** Queue a message, and return its accepted run. */
  async send(message: Submission, options: SendOptions = {}): Promise<Run> {
    return this.post("/v1/runs", message, options);
  }

  /** Queue a message, and return its run once it has ended, or waits for a person or its caller. */
  async ask(message: Submission, options: SendOptions = {}): Promise<Run> {
    const run = await this.post("/v1/runs/wait", message, options);
    return hasStopped(run) ? run : this.wait(run.id, options);
  }

  /** Return a run once it has ended, or waits for a person or its caller. */
  async wait(runId: string, options: FollowOptions = {}): Promise<Run> {
    let after = options.after;
    for (;;) {
      const run = await this.run(runId, options.signal);
      if (hasStopped(run)) return run;
      for await (const { cursor, event } of this.events(runId, { ...options, after })) {
        after = cursor;
        if (event.type === "waiting" || isLast(event)) break;
      }
    }
  }

  /** Return a run. */
  async run(runId: string, signal?: AbortSignal): Promise<Run> {
    const { data } = await this.api.GET("/v1/runs/{run_id}", { params: { path: { run_id: runId } }, signal });
    return data as Run;
  }

  /** Queue a message, and yield its events until its run ends: one request, unless the connection breaks. */
  async *stream(message: Submission, options: SendOptions = {}): AsyncGenerator<Followed> {
    const headers = { ...idempotency(options.idempotencyKey), "Content-Type": "application/json" };
    const request = new Request(`${this.transport.baseUrl}/v1/runs/stream`, {
      method: "POST",
      headers: { ...headers, Accept: "text/event-stream" },
      body: JSON.stringify(message),
      signal: options.signal ?? null,
    });
    const response = await this.transport.fetch(request);
    const runId = response.headers.get("Nova-Run-Id") as string;
    let after: string | undefined;
    try {
      for await (const followed of read(response, this.transport.baseUrl)) {
        after = followed.cursor;
        yield followed;
        if (isLast(followed.event)) return;
      }
    } catch (error) {
      if (!isTemporary(error)) throw error;
      await sleep(delayMs(1), options.signal);
    }
    yield* this.events(runId, { after, signal: options.signal });
  }

  /** Yield the events of a run after a cursor, in order and each once, until the run ends. Reconnects by itself. */
  events(runId: string, options: FollowOptions = {}): AsyncGenerator<Followed> {
    return follow(this.transport, runId, options);
  }

  /** Yield what changes, in order and each once: from now on, or after a cursor. Reconnects by itself. */
  changes(options: ChangeOptions = {}): AsyncGenerator<FollowedChange> {
    return followChanges(this.transport, options);
  }

  /** Answer what a run waits for: a question with `text`, a call that needs approval with `approve`. */
  async answer(runId: string, answer: Answer): Promise<Run> {
    const params = { path: { run_id: runId } };
    const { data } = await this.api.POST("/v1/runs/{run_id}/answers", { params, body: answer });
    return data as Run;
  }

  /** Give a run the results of tools that its caller executes. */
  async giveResults(runId: string, results: ToolResults): Promise<Run> {
    const params = { path: { run_id: runId } };
    const { data } = await this.api.POST("/v1/runs/{run_id}/tool-results", { params, body: results });
    return data as Run;
  }

  /** Cancel a run. */
  async cancel(runId: string): Promise<void> {
    await this.api.POST("/v1/runs/{run_id}/cancel", { params: { path: { run_id: runId } } });
  }

  private async post(path: "/v1/runs" | "/v1/runs/wait", body: Submission, options: SendOptions): Promise<Run> {
    const headers = idempotency(options.idempotencyKey);
    const { data } = await this.api.POST(path, { body, headers, signal: options.signal });
    return data as Run;
  }
}

const OPEN: readonly Run["status"][] = ["scheduled", "queued", "running", "waiting"];
const OF_OTHERS = ["user", "approval", "client_tool"];

/** Return whether a run has ended, or waits for a person or its caller. */
function hasStopped(run: Run): boolean {
  return !OPEN.includes(run.status) || (run.waits ?? []).some((wait) => OF_OTHERS.includes(wait.request.kind));
}
