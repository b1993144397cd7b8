/** Terms of Mez's own, as docs/glossary.md explains them: first sentences, taken at build time (vite.config.ts). */

import terms from "virtual:glossary";

export const meaningOfTerm = (term: string): string | undefined => terms[term];
