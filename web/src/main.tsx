/** Starts the page: signs in if the address is a one-time link, and starts polling the edge. */

import { render } from "preact";

import { signIn } from "./api/client.ts";
import { App } from "./app.tsx";
import { goLive } from "./state/live.ts";
import { signedOut } from "./state/page.ts";
import { tokenIn } from "./state/route.ts";
import { restoreTheme } from "./state/theme.ts";
import "uplot/dist/uPlot.min.css";
import "./styles.css";

const kiosk = new URLSearchParams(location.search).has("kiosk");

async function begin(): Promise<void> {
    restoreTheme();
    document.body.classList.toggle("kiosk", kiosk);
    const root = document.getElementById("page");
    if (!root) throw new Error("index.html has no element #page");
    const token = tokenIn(location.hash);
    // The token works only once. Removes it from the address and from the browser's history.
    if (token !== null) history.replaceState(null, "", location.pathname + location.search);
    render(<App kiosk={kiosk} />, root);
    try {
        if (token !== null) await signIn(token);
    } catch (error) {
        // If the browser is signed in already, the page continues with that session.
        signedOut(error instanceof Error ? error.message : String(error));
    }
    goLive();
}

// A link that is opened in a tab with this page changes only the part after `#`, so the browser does not load the page again.
addEventListener("hashchange", () => {
    if (tokenIn(location.hash) !== null) location.reload();
});

void begin();
