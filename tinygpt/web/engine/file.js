// The data that the stage `explore` puts into the page: params, vocabulary, metrics, and the weights in 16 bits.

/** The vocabulary: character <-> id. */
class Vocab {
  /** `specials`: <unk> <bos> <eos>, the first ids; `codePoints`: of the characters, which follow. */
  constructor(specials, codePoints) {
    this.nSpecials = specials.length;
    this.entries = [...specials, ...codePoints.map((code) => String.fromCodePoint(code))];
    this.size = this.entries.length;
    this.UNK = specials.indexOf("<unk>");
    this.ids = new Map(this.entries.map((entry, id) => [entry, id]).slice(this.nSpecials));
  }

  /** Ids of the characters of `text`, without specials; unknown characters become <unk>. */
  encode(text) {
    return Array.from(text, (character) => this.ids.get(character) ?? this.UNK);
  }

  /** The characters of `ids`; specials have none and are skipped. */
  decode(ids) {
    return ids.filter((id) => id >= this.nSpecials).map((id) => this.entries[id]).join("");
  }

  /** An entry so that it can be seen: a line end as ↵, a space as ␣. */
  show(id) {
    return { "\n": "↵", " ": "␣", "\u3000": "␣", "\t": "⇥" }[this.entries[id]] ?? this.entries[id];
  }
}

/**
 * Read the embedded data: a line with the checksum of the next one, which is JSON.
 * Throws an Error that names both checksums if the data is not what the stage wrote.
 */
function openFile(text) {
  const [header, json = ""] = text.trim().split("\n");
  const expected = /^crc32 ([0-9a-f]{8})$/.exec(header)?.[1];
  if (!expected) throw new Error("The data in this page is missing: there is no checksum.");
  const found = crc32(json).toString(16).padStart(8, "0");
  if (found !== expected) {
    throw new Error(`The data in this page is damaged: its checksum is ${found}, not ${expected}.`);
  }
  const content = JSON.parse(json);
  const vocab = new Vocab(content.specials, content.code_points);
  const id = (special) => content.specials.indexOf(special);
  const { params, metrics, parts, shapes } = content;
  let untrained; // made when it is first asked for
  return {
    params,
    vocab,
    UNK: id("<unk>"),
    BOS: id("<bos>"),
    EOS: id("<eos>"),
    metrics,
    parts,
    trained: new GPT(params.model, readWeights(shapes, content.weights, params.model)),
    get untrained() {
      untrained ??= new GPT(params.model, initialWeights(params.model, shapes, params.seed));
      return untrained;
    },
  };
}

/** Base64 of the numbers in 16 bits, one tensor after the other (a shared one once) -> {name: {shape, data}}. */
function readWeights(shapes, base64, params) {
  const bytes = atob(base64);
  const weights = {};
  let place = 0;
  for (const [name, shape] of Object.entries(shapes)) {
    if (name === "lm_head.weight" && params.tie_embeddings) {
      weights[name] = weights["token_embedding.weight"];
      continue;
    }
    const data = new Float32Array(size(shape));
    for (let i = 0; i < data.length; i++, place += 2) {
      data[i] = FLOAT_OF_HALF[bytes.charCodeAt(place) | (bytes.charCodeAt(place + 1) << 8)];
    }
    weights[name] = { shape, data };
  }
  return weights;
}

/** The number that each 16 bits stand for: sign, 5 bits of exponent, 10 of fraction (IEEE 754 binary16). */
const FLOAT_OF_HALF = Float32Array.from({ length: 65536 }, (_, bits) => {
  const sign = bits & 0x8000 ? -1 : 1;
  const exponent = (bits >> 10) & 31;
  const fraction = (bits & 1023) / 1024;
  return sign * (exponent ? 2 ** (exponent - 15) * (1 + fraction) : 2 ** -14 * fraction);
});

/** CRC-32 of a text of ASCII characters, as zlib counts it. */
function crc32(text) {
  let crc = -1;
  for (let i = 0; i < text.length; i++) crc = CRC_TABLE[(crc ^ text.charCodeAt(i)) & 255] ^ (crc >>> 8);
  return (crc ^ -1) >>> 0;
}

const CRC_TABLE = Uint32Array.from({ length: 256 }, (_, byte) => {
  let crc = byte;
  for (let bit = 0; bit < 8; bit++) crc = crc & 1 ? 0xedb88320 ^ (crc >>> 1) : crc >>> 1;
  return crc;
});
