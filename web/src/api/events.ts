/** The edge's stream of events. */

import type { EdgeEvent } from "./types.ts";

/**
 * Calls `heard` for each event, until the returned function is called. The browser reconnects by itself, and then gets the events that it
 * missed. After a new call, the edge sends its newest events again, with the same ids. If the edge refuses, the browser does not try again,
 * and `closed` is called.
 */
export function hear(heard: (event: EdgeEvent) => void, closed: () => void): () => void {
    const stream = new EventSource("/api/v1/events");
    stream.onmessage = (message: MessageEvent<string>) => heard(JSON.parse(message.data) as EdgeEvent);
    stream.onerror = () => {
        if (stream.readyState === EventSource.CLOSED) closed();
    };
    return () => stream.close();
}
