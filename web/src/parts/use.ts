/** Hooks that connect components with the page's state, the address and requests. */

import { useEffect, useReducer, useRef, useState } from "preact/hooks";

import { page, type Page } from "../state/page.ts";
import { parseRoute, type Route } from "../state/route.ts";

/** Returns `select` of the page's state. Renders the component again when the selected value changes. */
export function usePage<T>(select: (value: Page) => T): T {
    const [, again] = useReducer((count: number) => count + 1, 0);
    const selected = select(page.get());
    useEffect(() => {
        let shown = select(page.get());
        return page.subscribe(() => {
            const next = select(page.get());
            if (Object.is(next, shown)) return;
            shown = next;
            again(undefined as never);
        });
    }, []);
    return selected;
}

/** The view that the address names. */
export function useRoute(): Route {
    const [hash, setHash] = useState(location.hash);
    useEffect(() => {
        const changed = (): void => setHash(location.hash);
        addEventListener("hashchange", changed);
        return () => removeEventListener("hashchange", changed);
    }, []);
    return parseRoute(hash);
}

/** An answer about an instant, or why there is none: requested, nothing there, or the edge refused or did not answer. */
export type Answered<T> = { is: "there"; answer: T } | { is: "asking" | "none" } | { is: "failed"; why: string };

/** Requests answers about a moving instant: one at a time, and only for the newest instant. `wanted` is `null`: no request. */
export function useNewestAnswer<T>(wanted: number | null, ask: (wanted: number, signal: AbortSignal) => Promise<T | null>): Answered<T> {
    const [answered, setAnswered] = useState<Answered<T>>({ is: "asking" });
    const isWanted = useRef(false);
    isWanted.current = wanted !== null;
    const next = useRef<number | null>(null);
    const asking = useRef(false);
    const over = useRef(new AbortController());

    const askOn = async (): Promise<void> => {
        if (asking.current) return;
        asking.current = true;
        const { signal } = over.current;
        while (next.current !== null && !signal.aborted) {
            const asked = next.current;
            next.current = null;
            const found = await ask(asked, signal).then(
                (answer): Answered<T> => (answer === null ? { is: "none" } : { is: "there", answer }),
                (error: unknown): Answered<T> => ({ is: "failed", why: error instanceof Error ? error.message : String(error) }),
            );
            // Meanwhile, the instant may have moved to where no answer is wanted.
            if (isWanted.current && !signal.aborted) setAnswered(found);
        }
        asking.current = false;
    };
    useEffect(() => {
        next.current = wanted;
        if (wanted === null) setAnswered({ is: "none" });
        else void askOn();
    }, [wanted]);
    useEffect(() => () => over.current.abort(), []);
    return answered;
}
