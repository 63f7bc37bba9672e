// As harness.py: each check is a function that throws where the client and the server do not fit.

import { readFileSync } from "node:fs";

export const URL = process.env.AGON_URL; // http://host:port of the server
export const V1 = `${URL}/v1`;
export const MODEL = process.env.AGON_MODEL;
export const KEY = process.env.AGON_KEY || "none";

const checks = [];

/** Register a function as the check of this name. What it returns is printed as a remark. */
export function check(name, call) {
  checks.push([name, call]);
}

/** The error that the call throws; throws if it throws none. */
export async function refusal(call) {
  try {
    await call();
  } catch (error) {
    return error;
  }
  throw new Error("not refused");
}

/** Name and version of an installed package. */
export function versioned(name) {
  const manifest = new globalThis.URL(`node_modules/${name}/package.json`, import.meta.url);
  return `${name} (npm) ${JSON.parse(readFileSync(manifest)).version}`;
}

/** Run the checks in their order and print one line for each; exit with 1 if one has failed. */
export async function run() {
  let hasFailed = false;
  for (const [name, call] of checks) {
    if (!name.includes(process.env.AGON_ONLY || "")) continue;
    try {
      const remark = await call();
      console.log(`ok    ${name}${remark ? ` (${remark})` : ""}`);
    } catch (error) {
      hasFailed = true;
      console.log(`FAIL  ${name}: ${`${error.name}: ${error.message}`.split(/\s+/).join(" ").slice(0, 400)}`);
      if (process.env.AGON_TRACE) console.error(error);
    }
  }
  process.exit(hasFailed ? 1 : 0);
}
