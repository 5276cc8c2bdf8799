// Runs the golden vectors on the visitor's WebGPU and shows the verdict.
import { DTYPES, Gpu, Request, Table, layout } from "./decoder.js";

const KERNEL = new URL("../../kernels/decode.wgsl", import.meta.url);
const VECTORS = new URL("../vectors/v1/decode.json", import.meta.url);

/** Failures that are written out; the rest is counted. */
const SHOWN = 20;

const show = (id, text) => { document.getElementById(id).textContent = text; };

function conclude(verdict, text) {
  const element = document.getElementById("verdict");
  element.textContent = text;
  element.dataset.verdict = verdict;
}

async function load(url) {
  const response = await fetch(url).catch((error) => { throw new Error(`${url}: ${error.message}`); });
  if (!response.ok) {
    throw new Error(`${url}: ${response.status} ${response.statusText}; serve the whole repository`);
  }
  return response;
}

/** Bytes by formula: the top ones of xorshift32, as the vectors' comment says. */
function randomBytes(seed, count) {
  let state = Math.imul(seed, 2654435769) >>> 0 || 1;
  return Uint8Array.from({ length: count }, () => {
    state ^= state << 13;
    state ^= state >>> 17;
    state ^= state << 5;
    return (state >>> 24) & 0xff;
  });
}

const fromHex = (digits) => Uint8Array.from(digits.match(/../g) ?? [], (pair) => parseInt(pair, 16));
const toHex = (bytes) => Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");

/** Values as the vectors write them, most significant digit first, to bytes, little-endian. */
const valueBytes = (values) =>
  Uint8Array.from(values.split(" ").flatMap((value) => Array.from(fromHex(value)).reverse()));

const sha256 = async (bytes) => toHex(new Uint8Array(await crypto.subtle.digest("SHA-256", bytes)));

/** Each vector: its name, layout, records, and a check of the rows in one format that gives what is wrong, or null. */
function* tables(vectors) {
  for (const { name, dim, rate, record, ...values } of vectors.records) {
    const check = async (rows, dtype) => {
      const expected = valueBytes(values[dtype]);
      const at = rows.findIndex((byte, i) => byte !== expected[i]);
      if (rows.length === expected.length && at < 0) {
        return null;
      }
      const { bytes } = DTYPES[dtype];
      const value = Math.floor(at / bytes);
      const digits = (all) => toHex(all.slice(value * bytes, (value + 1) * bytes).reverse());
      return `value ${value} is ${digits(rows)}, expected ${digits(expected)}`;
    };
    yield { name, layout: layout(dim, rate), records: fromHex(record), check };
  }
  const digest = (expected) => async (rows, dtype) => {
    const got = await sha256(rows);
    return got === expected[dtype] ? null : `rows have SHA-256 ${got}, expected ${expected[dtype]}`;
  };
  for (const { dim, rate, rows, seed, sha256 } of vectors.digests) {
    const shape = layout(dim, rate);
    const records = randomBytes(seed, rows * shape.recordBytes);
    yield { name: `${rate / 4} bits, width ${dim}, random records`, layout: shape, records, check: digest(sha256) };
  }
  for (const { dim, rate, code, sha256 } of vectors.scales) {
    const shape = layout(dim, rate);
    const records = new Uint8Array(4096 * shape.recordBytes);
    for (let i = 0; i < 4096; i++) {
      const scale = i | ((i % 16) << 12);
      records.set(fromHex(code), i * shape.recordBytes);
      records.set([scale & 0xff, scale >> 8], (i + 1) * shape.recordBytes - 2);
    }
    yield { name: `every scale, width ${dim}`, layout: shape, records, check: digest(sha256) };
  }
}

/** Every vector in every format. Each request also asks for a missing row, which must come back as zeros. */
async function conformance(gpu, vectors) {
  const all = [...tables(vectors)];
  const expected = all.length * Object.keys(DTYPES).length;
  const failures = [];
  let cases = 0;
  for (const { name, layout, records, check } of all) {
    const table = new Table(gpu, layout, records);
    const rows = records.length / layout.recordBytes;
    for (const dtype of Object.keys(DTYPES)) {
      const request = new Request(table, dtype, rows + 1);
      const bytes = await request.decode([...Array(rows).keys(), -1]);
      const wanted = rows * layout.dim * DTYPES[dtype].bytes;
      let failure = await check(bytes.subarray(0, wanted), dtype);
      if (bytes.subarray(wanted).some((byte) => byte !== 0)) {
        failure ??= "a missing row is not zero";
      }
      if (failure) {
        failures.push(`${name}; ${dtype}: ${failure}`);
      }
      request.destroy();
      cases++;
    }
    table.destroy();
    show("cases", `${cases} of ${expected}`);
  }
  return { cases, expected, failures };
}

/** Rows per second of whole requests: ids to the device, decoding, rows back to the page. */
async function speed(gpu) {
  const [dim, rate, tableRows, rows] = [256, 8, 65536, 16384];
  const shape = layout(dim, rate);
  const table = new Table(gpu, shape, randomBytes(1, tableRows * shape.recordBytes));
  const request = new Request(table, "bf16", rows);
  const records = Array.from({ length: rows }, (_, i) => Math.imul(i, 40503) & (tableRows - 1));
  await request.decode(records);
  const started = performance.now();
  let requests = 0;
  do {
    await request.decode(records);
    requests++;
  } while (performance.now() - started < 1000);
  const perSecond = (requests * rows * 1000) / (performance.now() - started);
  request.destroy();
  table.destroy();
  return `${Math.round(perSecond).toLocaleString("en")} rows/s (requests of 16,384 rows, 256 values at 2 bits to bf16, `
    + "read back to the page)";
}

async function main() {
  const source = await (await load(KERNEL)).text();
  const vectors = await (await load(VECTORS)).json();
  let gpu;
  try {
    gpu = await Gpu.open(source);
  } catch (error) {
    conclude("no-device", error.message);
    return;
  }
  show("adapter", gpu.name);
  show("shape", gpu.groupsPerThread === 1 ? "a thread per group of 8 values" : "a thread per row");
  const uncaptured = [];
  gpu.device.addEventListener("uncapturederror", ({ error }) => uncaptured.push(error.message));

  const { cases, expected, failures } = await conformance(gpu, vectors);
  failures.push(...uncaptured);
  if (cases !== expected || cases === 0) {
    failures.push(`${cases} cases were run, expected ${expected}`);
  }
  show("speed", await speed(gpu));
  if (failures.length === 0) {
    conclude("exact", "Exact: every bit as specified.");
    return;
  }
  const more = failures.length > SHOWN ? `\nand ${failures.length - SHOWN} more` : "";
  show("failures", failures.slice(0, SHOWN).join("\n") + more);
  document.getElementById("failures").hidden = false;
  conclude("failed", `Failed: ${failures.length} of ${expected} cases.`);
}

main().catch((error) => conclude("failed", error.message));
