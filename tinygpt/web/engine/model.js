// TinyGPT: ids in, a score for every possible next character out. Names and order are those of tinygpt/model.py.
//
// Letters: T positions, C channels (n_embd), H heads, D head size (C / H), F MLP width, V vocabulary, S context size.
// Every matrix is a Float32Array, row after row. A `trace`, where there is one, takes note of what is computed.

/** A weight matrix (O × I) with a bias or none, or only its outputs from `first` on, `n` of them. */
class Linear {
  constructor(weights, products, name, first = 0, n = weights[`${name}.weight`].shape[0]) {
    const { shape, data } = weights[`${name}.weight`];
    const bias = weights[`${name}.bias`];
    this.nIn = shape[1];
    this.products = products;
    const rows = data.subarray(first * this.nIn, (first + n) * this.nIn);
    this.matrix = products.keep(rows, bias ? bias.data.subarray(first, first + n) : null, n);
  }

  /** x (T × I) -> (T × O). */
  forward(x) {
    return this.products.linear(x, x.length / this.nIn, this.matrix);
  }
}

/** Divide each row by its root mean square, then scale each channel. */
class RMSNorm {
  static EPS = 1e-6;

  constructor(weights, name) {
    this.scale = weights[`${name}.scale`].data;
  }

  forward(x) {
    const C = this.scale.length;
    const y = new Float32Array(x.length);
    for (let row = 0; row < x.length; row += C) {
      const factor = 1 / Math.sqrt(dot(x, row, x, row, C) / C + RMSNorm.EPS);
      for (let c = 0; c < C; c++) y[row + c] = x[row + c] * factor * this.scale[c];
    }
    return y;
  }
}

/** Shift each row to the mean 0 and stretch it to the variance 1, then scale and shift each channel. */
class LayerNorm {
  static EPS = 1e-5;

  constructor(weights, name) {
    this.weight = weights[`${name}.weight`].data;
    this.bias = weights[`${name}.bias`] ? weights[`${name}.bias`].data : new Float32Array(this.weight.length);
  }

  forward(x) {
    const C = this.weight.length;
    const y = new Float32Array(x.length);
    for (let row = 0; row < x.length; row += C) {
      let mean = 0;
      for (let c = 0; c < C; c++) mean += x[row + c] / C;
      let variance = 0;
      for (let c = 0; c < C; c++) variance += (x[row + c] - mean) ** 2 / C;
      const factor = 1 / Math.sqrt(variance + LayerNorm.EPS);
      for (let c = 0; c < C; c++) y[row + c] = (x[row + c] - mean) * factor * this.weight[c] + this.bias[c];
    }
    return y;
  }
}

function makeNorm(params, weights, name) {
  return params.norm === "layernorm" ? new LayerNorm(weights, name) : new RMSNorm(weights, name);
}

/** Leaves everything as it is: in the place of a part that the params leave out. */
class Identity {
  forward(x) {
    return x;
  }
}

/** Turn adjacent pairs of channels by an angle that grows with the position: pair i by position · 10000^(-2i / D). */
class RotaryPosition {
  constructor(D, S) {
    this.D = D;
    const angles = Float64Array.from({ length: (S * D) / 2 }, (_, n) => {
      const [position, pair] = [Math.floor(n / (D / 2)), n % (D / 2)];
      return position * 10000 ** ((-2 * pair) / D);
    });
    this.cos = angles.map(Math.cos); // (S × D / 2)
    this.sin = angles.map(Math.sin);
  }

  /** x (T × D), the first row at position `start`. */
  forward(x, start) {
    const y = new Float32Array(x.length);
    for (let even = 0, n = (start * this.D) / 2; even < x.length; even += 2, n++) {
      y[even] = x[even] * this.cos[n] - x[even + 1] * this.sin[n];
      y[even + 1] = x[even] * this.sin[n] + x[even + 1] * this.cos[n];
    }
    return y;
  }
}

/** Keys and values of all positions read so far, layer by layer, so that each position is computed once. */
class KVCache {
  constructor({ n_layer, n_head, n_embd, context_size }) {
    const heads = () => Array.from({ length: n_head }, () => new Float32Array((context_size * n_embd) / n_head));
    this.length = 0; // positions
    this.layers = Array.from({ length: n_layer }, () => ({
      keys: heads(), // [H] of (S × D)
      values: heads(),
      shifted: [new Float32Array(n_embd), new Float32Array(n_embd)], // what each token shift read last
    }));
  }

  /** Forget all that was read. */
  clear() {
    this.length = 0;
    for (const { shifted } of this.layers) for (const before of shifted) before.fill(0);
  }
}

/** Every position gathers from itself and the positions before it, once per head. */
class CausalSelfAttention {
  constructor(params, weights, products, name) {
    const C = params.n_embd;
    const part = (number) => new Linear(weights, products, `${name}.qkv_proj`, number * C, C);
    this.n_head = params.n_head;
    this.products = products;
    this.qkv_proj = { q: part(0), k: part(1), v: part(2) }; // three projections side by side in one
    this.o_proj = new Linear(weights, products, `${name}.o_proj`);
    this.q_norm = params.qk_norm ? new RMSNorm(weights, `${name}.q_norm`) : new Identity();
    this.k_norm = params.qk_norm ? new RMSNorm(weights, `${name}.k_norm`) : new Identity();
    const rope = params.position === "rope";
    this.rotate = rope ? new RotaryPosition(C / this.n_head, params.context_size) : new Identity();
  }

  /**
   * x (T × C) at the positions from `start` on -> what its last n rows gather (n × C).
   * The layer's cache takes the keys and values of all T.
   */
  forward(x, T, n, start, layer, { causal, scaled, trace }) {
    const C = x.length / T;
    const split = (projected, rows) => splitHeads(projected, rows, this.n_head);
    const q = split(this.qkv_proj.q.forward(lastRows(x, n, C)), n).map((head) => this.q_norm.forward(head));
    const k = split(this.qkv_proj.k.forward(x), T).map((head) => this.k_norm.forward(head));
    const v = split(this.qkv_proj.v.forward(x), T); // [H] of (T × D), as k; of q, (n × D)
    const qRotated = q.map((head) => this.rotate.forward(head, start + T - n));
    const kRotated = k.map((head) => this.rotate.forward(head, start));
    if (trace) Object.assign(trace, { q, k, v, qRotated, kRotated, scores: [], weights: [], heads: [] });

    const D = C / this.n_head;
    const length = start + T;
    const heads = qRotated.map((query, h) => {
      layer.keys[h].set(kRotated[h], start * D);
      layer.values[h].set(v[h], start * D);
      const asking = scaled ? times(query, 1 / Math.sqrt(D)) : query;
      const [keys, values] = [layer.keys[h], layer.values[h]].map((part) => part.subarray(0, length * D));
      const scores = this.products.timesTransposed(asking, n, keys, length); // (n × length)
      const weights = attentionWeights(trace ? scores.slice() : scores, n, length, causal);
      const head = this.products.times(weights, n, values, length); // (n × D)
      if (trace) [trace.scores[h], trace.weights[h], trace.heads[h]] = [scores, weights, head];
      return head;
    });
    return this.o_proj.forward(mergeHeads(heads, n));
  }
}

/**
 * How much the last n of `length` positions read from each: scores (n × length) become shares, every row of which
 * sums to 1. Causal: nothing from the positions behind the one that asks.
 */
function attentionWeights(scores, n, length, causal) {
  for (let t = 0; t < n; t++) {
    const nSeen = causal ? length - n + t + 1 : length;
    softmax(scores, t * length, nSeen);
    scores.fill(0, t * length + nSeen, (t + 1) * length);
  }
  return scores;
}

/** Work on each position's vector alone: widen, bend, narrow (C -> F -> C). */
class MLP {
  constructor(params, weights, products, name) {
    this.kind = params.mlp;
    if (this.kind === "swiglu") this.gate_proj = new Linear(weights, products, `${name}.gate_proj`);
    this.up_proj = new Linear(weights, products, `${name}.up_proj`);
    this.down_proj = new Linear(weights, products, `${name}.down_proj`);
  }

  forward(x, trace) {
    const wide = this.up_proj.forward(x); // (T × F)
    if (this.kind === "gelu") {
      for (let i = 0; i < wide.length; i++) wide[i] = gelu(wide[i]);
    } else if (this.kind === "relu2") {
      for (let i = 0; i < wide.length; i++) wide[i] = Math.max(0, wide[i]) ** 2;
    } else {
      const gate = this.gate_proj.forward(x);
      for (let i = 0; i < wide.length; i++) wide[i] *= silu(gate[i]);
    }
    if (trace) trace.mlpWide = wide;
    return this.down_proj.forward(wide);
  }
}

/** Add to each position a share of the one before it, channel by channel. */
class TokenShift {
  constructor(weights, name) {
    this.share = weights[`${name}.share`].data;
  }

  /** x (T × C); `before` (C) is what stands before the first row, and takes the last row for the next time. */
  forward(x, before) {
    const C = this.share.length;
    const y = new Float32Array(x.length);
    for (let c = 0; c < C; c++) y[c] = x[c] + this.share[c] * before[c];
    for (let i = C; i < x.length; i++) y[i] = x[i] + this.share[i % C] * x[i - C];
    before.set(lastRows(x, 1, C));
    return y;
  }
}

/** Read from the context, then work on what was read; each step adds to what was there. */
class Block {
  constructor(params, weights, products, name) {
    this.norm1 = makeNorm(params, weights, `${name}.norm1`);
    this.shift1 = params.token_shift ? new TokenShift(weights, `${name}.shift1`) : new Identity();
    this.attention = new CausalSelfAttention(params, weights, products, `${name}.attention`);
    this.norm2 = makeNorm(params, weights, `${name}.norm2`);
    this.shift2 = params.token_shift ? new TokenShift(weights, `${name}.shift2`) : new Identity();
    this.mlp = new MLP(params, weights, products, `${name}.mlp`);
  }

  /** x (T × C) at the positions from `start` on -> the block's output for its last n rows (n × C). */
  forward(x, T, n, start, layer, options) {
    const norm1 = this.norm1.forward(x);
    const shifted1 = this.shift1.forward(norm1, layer.shifted[0]);
    const attentionOut = this.attention.forward(shifted1, T, n, start, layer, options);
    const afterAttention = add(lastRows(x, n, x.length / T), attentionOut);
    const norm2 = this.norm2.forward(afterAttention);
    const shifted2 = this.shift2.forward(norm2, layer.shifted[1]);
    const mlpOut = this.mlp.forward(shifted2, options.trace);
    const output = add(afterAttention, mlpOut);
    if (options.trace) {
      Object.assign(options.trace, { input: x, norm1, shifted1, attentionOut, afterAttention });
      Object.assign(options.trace, { norm2, shifted2, mlpOut, output });
    }
    return output;
  }
}

/** Embed ids and positions, run the blocks, score every entry of the vocabulary. */
class GPT {
  /** `weights`: {name in the state dict: {shape, data}}. */
  constructor(params, weights, products = KERNEL_MODULE ? new FastProducts() : new Products()) {
    this.params = params;
    this.weights = weights;
    this.token_embedding = weights["token_embedding.weight"].data; // (V × C)
    if (params.position === "learned") this.position_embedding = weights["position_embedding.weight"].data; // (S × C)
    this.blocks = Array.from({ length: params.n_layer }, (_, i) => new Block(params, weights, products, `blocks.${i}`));
    this.final_norm = makeNorm(params, weights, "final_norm");
    this.lm_head = new Linear(weights, products, "lm_head"); // with tie_embeddings its weight is token_embedding's
  }

  newCache() {
    return new KVCache(this.params);
  }

  /** Scores (V) of what comes after `ids`, which go on from what the cache has read. */
  read(ids, cache) {
    return this.head(this.features(ids, cache, { n: 1 }));
  }

  /** Scores of what comes after each of `ids`: (T × V). */
  forward(ids) {
    return this.head(this.features(ids, this.newCache()));
  }

  /** The vectors that lm_head reads, of the last n of `ids`: (n × C). */
  features(ids, cache, { n = ids.length, causal = true, scaled = true, trace } = {}) {
    const T = ids.length;
    const start = cache.length;
    const { n_layer, n_embd, context_size } = this.params;
    if (T < 1 || start + T > context_size) {
      throw new RangeError(`${start} + ${T} ids to read, but context_size is ${context_size}`);
    }
    let x = this.embed(ids, start, trace);
    for (const [i, block] of this.blocks.entries()) {
      // Of the last block nobody reads more than is asked for; its token shift, one position before that.
      const nRead = i === n_layer - 1 ? Math.min(T, n + (this.params.token_shift ? 1 : 0)) : T;
      const blockTrace = trace && (trace.blocks[i] = {});
      x = block.forward(x, T, nRead, start, cache.layers[i], { causal, scaled, trace: blockTrace });
    }
    cache.length = start + T;
    return this.final_norm.forward(lastRows(x, n, n_embd));
  }

  /** Token vectors, and position vectors if they are learned, added up: (T × C). */
  embed(ids, start, trace) {
    const C = this.params.n_embd;
    const tokenVectors = new Float32Array(ids.length * C);
    ids.forEach((id, t) => tokenVectors.set(this.token_embedding.subarray(id * C, (id + 1) * C), t * C));
    const positionVectors = this.position_embedding?.slice(start * C, (start + ids.length) * C) ?? null;
    const input = positionVectors ? add(tokenVectors, positionVectors) : tokenVectors;
    if (trace) Object.assign(trace, { tokenVectors, positionVectors, input });
    return input;
  }

  /** Vectors behind the final norm (T × C) -> scores (T × V). */
  head(x) {
    const logits = this.lm_head.forward(x);
    const cap = this.params.logit_soft_cap;
    if (cap) for (let i = 0; i < logits.length; i++) logits[i] = cap * Math.tanh(logits[i] / cap);
    return logits;
  }

  /** Scores (V) if the vector x (C) were what the last block gives. */
  headLogits(x) {
    return this.head(this.final_norm.forward(x));
  }

  /**
   * All that `forward` computes on its way, and what would come of it without the mask, or without dividing by sqrt(D).
   * Rows are positions. Of each block, head by head: q, k, v, qRotated, kRotated, heads (T × D); scores, before the
   * mask, and weights (T × T).
   */
  trace(ids, { causal = true, scaled = true } = {}) {
    const trace = { ids: [...ids], T: ids.length, blocks: [] };
    trace.final = this.features(ids, this.newCache(), { causal, scaled, trace });
    trace.logits = this.head(trace.final);
    return trace;
  }
}

/** One query or key (D), turned as at `position`. */
function rotate(vector, position) {
  return new RotaryPosition(vector.length, position + 1).forward(vector, position);
}
