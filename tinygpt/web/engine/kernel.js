// Where nearly all of the time goes: `linear` of numbers.js in WebAssembly, eight products at a time.
//
// There is no compiler here. The few instructions that it takes are put together below, as bytes, when the page opens.
// A browser without WebAssembly's vectors uses the plain form.
//
// A weight matrix (O × I) lies in panels of 8 outputs: first their 8 biases, then for each input its 8 weights. The
// kernel takes 6 rows and a panel, keeps their 6 × 8 sums at hand, adds up over all inputs and stores the sums.

const PANEL = 8; // outputs: two vectors of four numbers
const ROWS = 6; // with two vectors each they fill most of a processor's 16 registers

/** The parts of WebAssembly's binary format that the kernel needs. Whole numbers are written seven bits a byte. */
const WASM = {
  number: (n) => (n < 128 ? [n] : [(n & 127) | 128, ...WASM.number(n >>> 7)]),
  list: (items) => [...WASM.number(items.length), ...items.flat()],
  text: (text) => WASM.list(Array.from(text, (letter) => letter.charCodeAt(0))),
  section: (id, content) => [id, ...WASM.number(content.length), ...content],
  i32: 0x7f,
  v128: 0x7b,
  vector: (code, ...rest) => [0xfd, ...WASM.number(code), ...rest],
};

/** A module with product(x, xStride, panel, y, yStride, nRows, nInputs, nPanels); places and strides are in bytes. */
function kernelBytes(fused) {
  const rows = [0, 1, 2, 3, 4, 5];
  const halves = [0, 1];
  const parameters = ["x", "xStride", "panel", "y", "yStride", "nRows", "nInputs", "nPanels"];
  const numbers = ["rowsLeft", "inputsLeft", "weights", "xRow", "yRow", ...rows.map((r) => `x${r}`)];
  const vectors = ["share", "weight0", "weight1", ...rows.flatMap((r) => halves.map((h) => `sum${r}${h}`))];
  const locals = [...parameters, ...numbers, ...vectors];

  const get = (name) => [0x20, ...WASM.number(locals.indexOf(name))];
  const set = (name, value) => [...value, 0x21, ...WASM.number(locals.indexOf(name))];
  const constant = (n) => [0x41, n]; // below 64
  const raise = (name, by) => set(name, [...get(name), ...by, 0x6a]);
  const lower = (name, by) => set(name, [...get(name), ...by, 0x6b]);
  const repeatWhile = (name, body) => [0x03, 0x40, ...body, ...get(name), 0x0d, 0, 0x0b]; // while it is not 0
  const load = (place, half) => [...place, ...WASM.vector(0x00, 2, 16 * half)]; // v128.load
  const loadRepeated = (place) => [...place, ...WASM.vector(0x09, 2, 0)]; // v128.load32_splat: one number four times
  const store = (place, half, value) => [...place, ...value, ...WASM.vector(0x0b, 2, 16 * half)]; // v128.store
  const multiplyAdd = (a, b, sum) =>
    fused
      ? [...a, ...b, ...sum, ...WASM.vector(0x105)] // f32x4.relaxed_madd: one instruction, one rounding
      : [...sum, ...a, ...b, ...WASM.vector(0xe6), ...WASM.vector(0xe4)]; // f32x4.mul, f32x4.add

  const addInput = [
    ...halves.flatMap((h) => set(`weight${h}`, load(get("weights"), h))),
    ...rows.flatMap((r) => [
      ...set("share", loadRepeated(get(`x${r}`))),
      ...halves.flatMap((h) => set(`sum${r}${h}`, multiplyAdd(get("share"), get(`weight${h}`), get(`sum${r}${h}`)))),
      ...raise(`x${r}`, constant(4)),
    ]),
    ...raise("weights", constant(4 * PANEL)),
    ...lower("inputsLeft", constant(1)),
  ];
  const sixRows = [
    ...rows.flatMap((r) => [...set(`x${r}`, get("xRow")), ...raise("xRow", get("xStride"))]),
    ...rows.flatMap((r) => halves.flatMap((h) => set(`sum${r}${h}`, load(get("panel"), h)))), // the biases
    ...set("weights", [...get("panel"), ...constant(4 * PANEL), 0x6a]),
    ...set("inputsLeft", get("nInputs")),
    ...repeatWhile("inputsLeft", addInput),
    ...rows.flatMap((r) => [
      ...halves.flatMap((h) => store(get("yRow"), h, get(`sum${r}${h}`))),
      ...raise("yRow", get("yStride")),
    ]),
    ...lower("rowsLeft", constant(ROWS)),
  ];
  const onePanel = [
    ...set("xRow", get("x")),
    ...set("yRow", get("y")),
    ...set("rowsLeft", get("nRows")),
    ...repeatWhile("rowsLeft", sixRows),
    ...set("panel", get("weights")), // they end where the next panel begins
    ...raise("y", constant(4 * PANEL)),
    ...lower("nPanels", constant(1)),
  ];
  const kinds = [[...WASM.number(numbers.length), WASM.i32], [...WASM.number(vectors.length), WASM.v128]];
  const body = [...WASM.list(kinds), ...repeatWhile("nPanels", onePanel), 0x0b];
  return new Uint8Array([
    ...[0x00, 0x61, 0x73, 0x6d, 1, 0, 0, 0], // "\0asm", version 1
    ...WASM.section(1, WASM.list([[0x60, ...WASM.list(parameters.map(() => [WASM.i32])), 0]])), // the type
    ...WASM.section(2, WASM.list([[...WASM.text("js"), ...WASM.text("memory"), 2, 0, 1]])), // an import
    ...WASM.section(3, WASM.list([[0]])), // one function, of type 0
    ...WASM.section(7, WASM.list([[...WASM.text("product"), 0, 0]])), // an export
    ...WASM.section(10, WASM.list([[...WASM.number(body.length), ...body]])), // its code
  ]);
}

/** The kernel, compiled; null where the browser has no such instructions. */
const KERNEL_MODULE = (() => {
  if (typeof WebAssembly === "undefined") return null;
  const bytes = [true, false].map(kernelBytes).find((candidate) => WebAssembly.validate(candidate));
  return bytes ? new WebAssembly.Module(bytes) : null;
})();

/** `Products` by the kernel, in a memory of its own: first the weights that `keep` puts there, then room to work. */
class FastProducts extends Products {
  constructor(module = KERNEL_MODULE) {
    super();
    this.memory = new WebAssembly.Memory({ initial: 1 });
    this.product = new WebAssembly.Instance(module, { js: { memory: this.memory } }).exports.product;
    this.end = 0; // of the weights, in numbers
  }

  keep(weight, bias, O) {
    const I = weight.length / O;
    const matrix = this.panels(weight, bias, O, I, I, 1);
    this.end = matrix.end;
    return matrix;
  }

  linear(x, T, matrix) {
    const { start, O, I } = matrix;
    const nRows = ROWS * Math.ceil(T / ROWS); // nobody reads what comes of the rows behind the last one
    const nPanels = Math.ceil(O / PANEL);
    const width = PANEL * nPanels;
    const xStart = Math.max(this.end, matrix.end);
    const yStart = xStart + nRows * I;
    const numbers = this.numbers(yStart + nRows * width);
    numbers.set(x, xStart);
    this.product(4 * xStart, 4 * I, 4 * start, 4 * yStart, 4 * width, nRows, I, nPanels);
    const y = new Float32Array(T * O);
    for (let t = 0; t < T; t++) y.set(numbers.subarray(yStart + t * width, yStart + t * width + O), t * O);
    return y;
  }

  timesTransposed(a, n, b, m) {
    const D = b.length / m;
    return n < ROWS ? super.timesTransposed(a, n, b, m) : this.linear(a, n, this.panels(b, null, m, D, D, 1));
  }

  times(a, n, b, m) {
    const D = b.length / m;
    return n < ROWS ? super.times(a, n, b, m) : this.linear(a, n, this.panels(b, null, D, m, 1, D));
  }

  /** Panels behind the weights, of a matrix (O × I) in which outputs and inputs lie so many numbers apart. */
  panels(matrix, bias, O, I, outputStep, inputStep) {
    const start = this.end;
    const end = start + PANEL * Math.ceil(O / PANEL) * (1 + I);
    const numbers = this.numbers(end);
    for (let first = 0, place = start; first < O; first += PANEL) {
      for (let o = first; o < first + PANEL; o++) numbers[place++] = bias && o < O ? bias[o] : 0;
      for (let i = 0; i < I; i++) {
        for (let o = first; o < first + PANEL; o++) {
          numbers[place++] = o < O ? matrix[o * outputStep + i * inputStep] : 0;
        }
      }
    }
    return { start, end, O, I };
  }

  /** The memory as numbers, at least `n` of them. */
  numbers(n) {
    const missing = 4 * n - this.memory.buffer.byteLength;
    if (missing > 0) this.memory.grow(Math.ceil(missing / 65536));
    return new Float32Array(this.memory.buffer);
  }
}
