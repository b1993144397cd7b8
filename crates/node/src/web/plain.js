// Signs in with the token of the link. It stands behind the `#`, so it is in no request but this one, and leaves the address at once.
const token = new URLSearchParams(location.hash.slice(1)).get("token");
const say = (text) => { document.getElementById("state").textContent = text; };

async function signIn() {
  history.replaceState(null, "", location.pathname);
  const headers = { "Content-Type": "application/json" };
  try {
    const answer = await fetch("/api/v1/session", { method: "POST", headers, body: JSON.stringify({ token }) });
    say(answer.ok ? "You are signed in." : (await answer.json()).detail);
  } catch {
    say("The edge did not answer. Reload the page, and make another link if this one was used.");
  }
}

if (token) signIn();
