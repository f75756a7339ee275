// Requests to the server that this page comes from. Asks for the key when the server wants one.

const kKey = "lily.key";
let askForKey = async () => null;

/// `ask(wrong)` gives a key, or null when the user does not want to.
export function onKeyNeeded(ask) {
  askForKey = ask;
}

export class ApiError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

let asking = null;  // one dialog for all requests that wait for it

export async function request(path, options = {}) {
  for (;;) {
    const key = sessionStorage.getItem(kKey);
    const headers = {...options.headers};
    if (key) headers.Authorization = `Bearer ${key}`;
    const response = await fetch(path, {...options, headers});
    if (response.ok) return response;
    const body = await response.json().catch(() => null);
    const error = new ApiError(response.status, body?.error?.message ?? `The server answers ${response.status}.`);
    if (response.status !== 401) throw error;
    if (sessionStorage.getItem(kKey) !== key) continue;  // another request has asked meanwhile
    asking ??= askForKey(Boolean(key)).finally(() => { asking = null; });
    const given = await asking;
    if (!given) throw error;
    sessionStorage.setItem(kKey, given);
  }
}

/// The data of each server-sent event.
async function* events(stream) {
  const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
  let buffer = "";
  for (;;) {
    const {value, done} = await reader.read();
    if (done) return;
    buffer += value;
    for (let end; (end = buffer.indexOf("\n\n")) >= 0; buffer = buffer.slice(end + 2)) {
      const data = buffer.slice(0, end).split("\n").filter((line) => line.startsWith("data:"));
      if (data.length > 0) yield data.map((line) => line.slice(5).trimStart()).join("\n");
    }
  }
}

/// Streams a chat completion: on_delta({content, reasoning_content}) for each piece. Gives {finish_reason, timings}.
export async function streamChat(body, signal, onDelta) {
  const response = await request("/v1/chat/completions", {
    method: "POST",
    headers: {"Content-Type": "application/json"},
    body: JSON.stringify({...body, stream: true}),
    signal,
  });
  const end = {finish_reason: null, timings: null};
  for await (const data of events(response.body)) {
    if (data === "[DONE]") return end;
    const chunk = JSON.parse(data);
    if (chunk.error) throw new ApiError(0, chunk.error.message);
    end.timings = chunk.timings ?? end.timings;
    const choice = chunk.choices?.[0];
    if (!choice) continue;
    end.finish_reason = choice.finish_reason ?? end.finish_reason;
    if (choice.delta?.content || choice.delta?.reasoning_content) onDelta(choice.delta);
  }
  throw new ApiError(0, "The server closed the connection before the reply was complete.");
}

/// "ready", "loading" or "away"
export async function health() {
  try {
    const response = await fetch("/health");
    return response.ok ? "ready" : "loading";
  } catch {
    return "away";
  }
}
