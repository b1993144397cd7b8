/** One value that views read and that only actions change. */

/** What is told of a change, and to whom. */
export interface Store<T> {
    get(): T;
    /** Replaces the value by what `change` makes of it. Whoever subscribed is told, unless nothing changed. */
    update(change: (value: T) => T): void;
    /** Calls `heard` after each change, until the function that is returned is called. */
    subscribe(heard: () => void): () => void;
}

export function createStore<T>(first: T): Store<T> {
    let value = first;
    const listeners = new Set<() => void>();
    return {
        get: () => value,
        update(change) {
            const next = change(value);
            if (Object.is(next, value)) return;
            value = next;
            for (const heard of [...listeners]) heard();
        },
        subscribe(heard) {
            listeners.add(heard);
            return () => void listeners.delete(heard);
        },
    };
}
