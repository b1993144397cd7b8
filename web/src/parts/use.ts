/** Hooks between the page's value and components. */

import { useEffect, useReducer, useState } from "preact/hooks";

import { page, type Page } from "../state/page.ts";
import { parseRoute, type Route } from "../state/route.ts";

/** What `select` takes of the page's value; the component is drawn again when that is another value. */
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
