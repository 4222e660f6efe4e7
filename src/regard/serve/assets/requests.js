// Requests to the server.

/** Send a request, with the API key if there is one; ask the user for a key if the server requires it. */
export async function request(path, options) {
  const key = sessionStorage.getItem("key");
  const headers = { "content-type": "application/json", ...(key ? { authorization: `Bearer ${key}` } : {}) };
  const response = await fetch(path, { ...options, headers });
  if (response.status === 401) {
    const given = prompt("This server requires an API key:");
    if (given) {
      sessionStorage.setItem("key", given.trim());
      return request(path, options);
    }
  }
  if (!response.ok) throw new Error((await response.json().catch(() => ({}))).error ?? `the server responded with status ${response.status}`);
  return response;
}

export const post = (path, body, signal) => request(path, { method: "POST", body: JSON.stringify(body), signal });

/** Post a request; retry a few times if it fails. */
export async function postWithRetry(path, body, attempts = 5) {
  try {
    return await post(path, body);
  } catch (problem) {
    if (attempts <= 1) throw problem;
    await new Promise((done) => setTimeout(done, 2000));
    return postWithRetry(path, body, attempts - 1);
  }
}
