// What went wrong with a request, as the API says it.

export class Problem extends Error {
  constructor(status, said) {
    super(said.detail ?? "The server gave an answer that this page does not understand.");
    this.status = status;
    this.code = said.code ?? "unknown";
    this.hint = said.hint ?? "";
    this.facts = said;
  }
}

/** A request that cannot be understood: what is wrong with it, and what would do. */
export const refused = (detail, hint, facts = {}) => new Problem(422, { ...facts, code: "bad-request", detail, hint });
