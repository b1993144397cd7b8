/** How to get a session. */

import { Copy } from "../parts/Copy.tsx";

/** `detail`: why there is none, as the edge says it. */
export function SignIn({ detail }: { detail: string }) {
    return (
        <main class="empty">
            <h1>Sign in to this edge</h1>
            <p role="status">{detail}</p>
            <p>A link that works once signs this browser in. On the edge’s host, as the user that the edge runs as, run:</p>
            <Copy title="Command" text="mez edge open" />
            <p>Open the link that it prints in this browser, or scan its code with a phone.</p>
        </main>
    );
}
