/** Explains how to sign in. */

import { Copy } from "../parts/Copy.tsx";

/** `detail`: why there is no session, in the edge's words. */
export function SignIn({ detail }: { detail: string }) {
    return (
        <main class="empty">
            <h1>Sign in to this edge</h1>
            <p role="status">{detail}</p>
            <p>To sign in, make a one-time link. On the edge’s host, run this command as the user that the edge runs as:</p>
            <Copy title="Command" text="mez edge open" />
            <p>Open the printed link in this browser, or scan the QR code with a phone.</p>
        </main>
    );
}
