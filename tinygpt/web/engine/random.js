// The random numbers of PyTorch: the untrained model is the very one that training began with, and the same seed
// writes the same text as in reports/samples.json.

/** MT19937, the generator behind torch.manual_seed. Source: Matsumoto and Nishimura 1998. */
class MersenneTwister {
  constructor(seed) {
    this.state = new Uint32Array(624);
    this.state[0] = seed;
    for (let i = 1; i < 624; i++) {
      const previous = this.state[i - 1];
      this.state[i] = Math.imul(1812433253, previous ^ (previous >>> 30)) + i;
    }
    this.index = 624;
    this.waiting = null; // the second of a pair of normal numbers
  }

  /** 32 random bits. */
  next() {
    if (this.index === 624) this.refill();
    let bits = this.state[this.index++];
    bits ^= bits >>> 11;
    bits ^= (bits << 7) & 0x9d2c5680;
    bits ^= (bits << 15) & 0xefc60000;
    return (bits ^ (bits >>> 18)) >>> 0;
  }

  refill() {
    const { state } = this;
    for (let i = 0; i < 624; i++) {
      const bits = (state[i] & 0x80000000) | (state[(i + 1) % 624] & 0x7fffffff);
      state[i] = state[(i + 397) % 624] ^ (bits >>> 1) ^ (bits & 1 ? 0x9908b0df : 0);
    }
    this.index = 0;
  }

  /** A number from 0 up to but not 1, with 24 random bits: as many as a float32 holds. */
  uniform() {
    return (this.next() & 0xffffff) / 2 ** 24;
  }

  /** The same with 53 random bits, as many as a float64 holds. */
  uniform53() {
    const high = this.next() & 0x1fffff;
    return (high * 2 ** 32 + this.next()) / 2 ** 53;
  }

  /** A number from the normal distribution; they come in pairs, of which the second waits. */
  normal53() {
    if (this.waiting === null) {
      const angle = 2 * Math.PI * this.uniform53();
      const radius = Math.sqrt(-2 * Math.log1p(-this.uniform53()));
      this.waiting = radius * Math.sin(angle);
      return radius * Math.cos(angle);
    }
    const second = this.waiting;
    this.waiting = null;
    return second;
  }

  skip(n) {
    for (let i = 0; i < n; i++) this.next();
  }
}

/**
 * As torch.nn.init.normal_ fills `data` on a CPU: uniform numbers first, then Box and Muller's formula in groups of 16,
 * each of the first 8 paired with one of the last 8. A rest of less than 16 is drawn again together with what stands
 * before it; less than 16 in all are drawn pair by pair.
 */
function normal(data, std, random) {
  if (data.length < 16) {
    for (let i = 0; i < data.length; i++) data[i] = std * random.normal53();
    return;
  }
  for (let i = 0; i < data.length; i++) data[i] = random.uniform();
  for (let i = 0; i + 16 <= data.length; i += 16) normal16(data, i, std);
  if (data.length % 16) {
    const last = data.length - 16;
    for (let i = last; i < data.length; i++) data[i] = random.uniform();
    normal16(data, last, std);
  }
}

function normal16(data, start, std) {
  for (let i = start; i < start + 8; i++) {
    const radius = Math.sqrt(-2 * Math.log(1 - data[i])) * std;
    const angle = 2 * Math.PI * data[i + 8];
    data[i] = radius * Math.cos(angle);
    data[i + 8] = radius * Math.sin(angle);
  }
}

/**
 * The weights that a model has before training: `initial_model(params, V, seed)` of tinygpt/model.py, draw by draw.
 * `shapes`: the names of the state dict, in its order, -> shape.
 */
function initialWeights(params, shapes, seed) {
  const random = new MersenneTwister(seed);
  const weights = {};
  const fill = (name, std) => normal(weights[name].data, std, random);
  for (const [name, shape] of Object.entries(shapes)) {
    const data = new Float32Array(size(shape));
    weights[name] = { shape, data };
    if (/norm.*(scale|weight)$/.test(name)) data.fill(1);
    skipDefault(name, data.length, random);
  }
  if (params.tie_embeddings) weights["lm_head.weight"] = weights["token_embedding.weight"]; // drawn twice, then
  for (const name of Object.keys(shapes)) if (isMatrix(name)) fill(name, params.init_std);
  for (let i = 0; i < params.n_layer; i++) {
    for (const writer of ["attention.o_proj", "mlp.down_proj"]) {
      const name = `blocks.${i}.${writer}.weight`;
      fill(name, params.init_std / Math.sqrt(2 * params.n_layer));
      if (params.zero_init_outputs) weights[name].data.fill(0);
    }
  }
  if (params.zero_init_outputs && !params.tie_embeddings) weights["lm_head.weight"].data.fill(0);
  return weights;
}

const isMatrix = (name) => /(_embedding|_proj|lm_head)\.weight$/.test(name);

/** PyTorch fills embeddings and linear layers once as it makes them; the model then draws its own weights. */
function skipDefault(name, n, random) {
  if (/_embedding\.weight$/.test(name)) normal(new Float32Array(n), 1, random);
  else if (/(_proj|lm_head)\.(weight|bias)$/.test(name)) random.skip(n);
}
