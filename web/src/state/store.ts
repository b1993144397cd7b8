/** A value that reports its changes to listeners. */

export interface Store<T> {
    get(): T;
    /** Replaces the value by the result of `change`. Calls all listeners, unless the value is the same. */
    update(change: (value: T) => T): void;
    /** Calls `heard` after each change, until the returned function is called. */
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
