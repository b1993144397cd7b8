declare module "virtual:glossary" {
    /** The first sentence of each entry of docs/glossary.md, by its heading. */
    const terms: Readonly<Record<string, string>>;
    export default terms;
}

declare module "*.css";
