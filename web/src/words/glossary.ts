/** Terms of Mez with their meanings: the first sentences of entries of docs/glossary.md, read at build time (vite.config.ts). */

import terms from "virtual:glossary";

export const meaningOfTerm = (term: string): string | undefined => terms[term];
