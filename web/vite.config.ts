import { readFileSync } from "node:fs";

import { defineConfig, type Plugin } from "vite";

/** The glossary's terms that the page explains. */
const TERMS = [
    "accuracy",
    "accuracy floor",
    "age",
    "channel",
    "contract",
    "derived stream",
    "epoch",
    "group, member (of a group)",
    "latency bound",
    "link",
    "log",
    "on-time share",
    "original",
    "rung",
    "sequence",
    "site",
    "skip reason",
    "source",
    "store",
    "subscription",
];

/** Gives the page the first sentence of these entries, so that page and documents explain a term in the same way. */
function glossary(): Plugin {
    const file = new URL("../docs/glossary.md", import.meta.url);
    return {
        name: "glossary",
        resolveId: (id) => (id === "virtual:glossary" ? "\0glossary" : null),
        load(id) {
            if (id !== "\0glossary") return null;
            const entries = new Map(
                readFileSync(file, "utf8")
                    .split(/^### /m)
                    .slice(1)
                    .map((entry) => [entry.slice(0, entry.indexOf("\n")), entry.slice(entry.indexOf("\n") + 1)]),
            );
            const first = TERMS.map((term) => {
                const text = entries.get(term);
                if (text === undefined) throw new Error(`docs/glossary.md has no entry “${term}”; correct TERMS in web/vite.config.ts`);
                return [term, firstSentence(text)];
            });
            return `export default ${JSON.stringify(Object.fromEntries(first))}`;
        },
    };
}

function firstSentence(markdown: string): string {
    const text = markdown
        .replace(/\[([^\]]+)\]\([^)]+\)/g, "$1")
        .replace(/[`*]/g, "")
        .replace(/\s+/g, " ")
        .trim();
    return /^.*?[.:](?= |$)/.exec(text)?.[0].replace(/:$/, ".") ?? text;
}

// The page is served under a Content-Security-Policy without inline scripts, styles and data addresses: nothing may be inlined.
export default defineConfig({
    plugins: [glossary()],
    build: { target: "es2022", assetsInlineLimit: 0, modulePreload: { polyfill: false }, reportCompressedSize: false },
});
