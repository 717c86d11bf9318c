import type { components } from "./api.js";

/** The body of an error of the API (RFC 9457). */
export type Problem = components["schemas"]["Problem"];

/** A request that the API refused, or did not answer. */
export class NovaError extends Error {
  override readonly name = "NovaError";

  constructor(
    message: string,
    /** The stable name of the error, such as `not_found`; `unavailable` where nothing answered. */
    readonly code: string,
    /** The HTTP status; 0 where nothing answered. */
    readonly status: number,
    /** What the API said beside it. */
    readonly problem?: Problem,
    options?: ErrorOptions,
  ) {
    super(message, options);
  }

  /** Whether the same request may succeed later. */
  get isTemporary(): boolean {
    return this.status === 0 || this.status === 429 || this.status >= 502;
  }
}

/** Return the error of a response whose status is 400 or above. */
export async function errorOf(response: Response): Promise<NovaError> {
  const text = await response.text();
  const problem = problemOf(text);
  if (problem) return new NovaError(problem.detail, problem.code, response.status, problem);
  const quoted = JSON.stringify(text.replace(/\s+/g, " ").slice(0, 200));
  const message = `${response.url} answered ${response.status} without saying why: ${quoted}. A proxy in between?`;
  return new NovaError(message, response.status >= 502 ? "unavailable" : "unknown", response.status);
}

/** Return the error of a request that got no response. */
export function errorOfConnection(baseUrl: string, cause: unknown): NovaError {
  const reason = cause instanceof Error ? deepest(cause).message : String(cause);
  return new NovaError(`No answer of the fleet at ${baseUrl} (${reason}).`, "unavailable", 0, undefined, { cause });
}

function problemOf(text: string): Problem | undefined {
  try {
    const value: unknown = JSON.parse(text);
    const isProblem = typeof value === "object" && value !== null && "code" in value && "detail" in value;
    return isProblem ? (value as Problem) : undefined;
  } catch {
    return undefined;
  }
}

function deepest(error: Error): Error {
  return error.cause instanceof Error ? deepest(error.cause) : error;
}
