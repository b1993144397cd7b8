/** Starts the page: signs in if the address is a one-time link, and looks at the edge. */

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
    // The token works once, and does not stay in the address or in the browser's history.
    if (token !== null) history.replaceState(null, "", location.pathname + location.search);
    render(<App kiosk={kiosk} />, root);
    try {
        if (token !== null) await signIn(token);
    } catch (error) {
        // A browser that is signed in already goes on.
        signedOut(error instanceof Error ? error.message : String(error));
    }
    goLive();
}

// A link that is opened where the page is open already changes only the part after `#`.
addEventListener("hashchange", () => {
    if (tokenIn(location.hash) !== null) location.reload();
});

void begin();
