/** Short names for the types of the edge's answers. `schema.ts` is generated from docs/schema/openapi.json (`npm run api`). */

import type { components } from "./schema.ts";

type Schemas = components["schemas"];

export type Site = Schemas["Site"];
export type Camera = Schemas["Camera"];
export type Cameras = Schemas["Cameras"];
export type Contract = Schemas["Contract"];
export type ContractState = NonNullable<Contract["state"]>;
export type Source = Schemas["Source"];
export type Application = Schemas["Application"];
export type Applications = Schemas["Applications"];
export type Group = Schemas["Group"];
export type EdgeEvent = Schemas["Event"];
export type Problem = Schemas["Problem"];
export type Replies = Schemas["Replies"];
export type Reply = Replies["replies"][number];
export type Found = Schemas["Found"];
export type Held = Schemas["Held"];
export type HeldSpan = Held["spans"][number];
export type Hole = Held["holes"][number];
export type Notes = Schemas["Notes"];
export type Note = Notes["notes"][number];
export type PastRecord = Schemas["RecordAt"]["record"];
