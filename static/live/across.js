export function create() { return { update() {} }; }
