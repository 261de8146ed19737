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
