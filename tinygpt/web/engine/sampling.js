// Write on: the odds of the next character, a draw, and again; and what a text that stands there costs.

/**
 * Probabilities (V) of the next token from its scores: divide by the temperature, keep the top_k highest
 * (0: all), softmax. Temperature 0 gives everything to the highest.
 */
function odds(logits, { temperature, top_k = 0 }) {
  const result = new Float32Array(logits.length);
  if (temperature === 0) {
    result[highest(logits, 1)[0]] = 1;
    return result;
  }
  const lowestKept = top_k && top_k < logits.length ? logits[highest(logits, top_k)[top_k - 1]] : -Infinity;
  for (let id = 0; id < logits.length; id++) {
    result[id] = logits[id] < lowestKept ? -Infinity : logits[id] / temperature;
  }
  softmax(result, 0, result.length);
  return result;
}

/** Continues a prompt character by character; the same seed writes the same text. */
class Writer {
  constructor(model, FILE, { prompt, seed, temperature, top_k, max_new_chars }) {
    this.model = model;
    this.FILE = FILE;
    this.options = { temperature, top_k };
    this.max_new_chars = max_new_chars;
    this.random = new MersenneTwister(seed);
    this.ids = [FILE.BOS, ...FILE.vocab.encode(prompt)];
    this.nPrompt = this.ids.length;
    this.text = prompt;
    this.cache = model.newCache();
    this.done = false;
    this.reason = null; // "eos" or "length", once it is done
  }

  /** What the model sees of `ids` now: at most a context, the last part. */
  get window() {
    const start = Math.max(0, this.ids.length - this.model.params.context_size);
    return { start, length: this.ids.length - start };
  }

  /** The next id, added to the text; null when the text has ended. */
  next() {
    if (this.done) return null;
    const id = draw(odds(this.nextLogits(), this.options), this.random);
    if (id === this.FILE.EOS) return this.end("eos");
    this.ids.push(id);
    this.text += this.FILE.vocab.decode([id]);
    if (this.ids.length - this.nPrompt >= this.max_new_chars) this.end("length");
    return id;
  }

  end(reason) {
    this.done = true;
    this.reason = reason;
    return null;
  }

  /** Scores (V): what is new is read on, until the window slides; then every position is another, and read again. */
  nextLogits() {
    const { start } = this.window;
    if (start > 0) {
      this.cache.clear();
      return this.model.read(this.ids.slice(start), this.cache);
    }
    return this.model.read(this.ids.slice(this.cache.length), this.cache);
  }
}

/**
 * An id drawn with these odds, as torch.multinomial does it on a CPU: a race. Each id gets a random e = -ln(1 - u), and
 * the largest odds / e wins; an id with twice the odds wins twice as often.
 */
function draw(odds, random) {
  let [winner, best] = [0, -1];
  for (let id = 0; id < odds.length; id++) {
    const u = random.uniform53(); // drawn for each id, so that the next draw begins where PyTorch's does
    const result = odds[id] ? odds[id] / -Math.log1p(-u) : 0;
    if (result > best) [winner, best] = [id, result];
  }
  return winner;
}

/**
 * What each character of a text costs, -ln p, and the five that were likeliest instead. As the evaluation does it:
 * <bos> first, windows of a context that do not overlap.
 */
function surprise(model, FILE, text) {
  const characters = Array.from(text);
  const ids = [FILE.BOS, ...FILE.vocab.encode(text)];
  const S = model.params.context_size;
  const V = FILE.vocab.size;
  const result = [];
  for (let start = 0; start < ids.length - 1; start += S) {
    const window = ids.slice(start, Math.min(start + S, ids.length - 1));
    const logits = model.forward(window);
    for (let t = 0; t < window.length; t++) {
      const scores = logits.subarray(t * V, (t + 1) * V);
      const id = ids[start + t + 1];
      const p = odds(scores, { temperature: 1 });
      const top = highest(p, 5).map((best) => [best, p[best]]);
      result.push({ char: characters[start + t], id, nats: nats(scores, id), top });
    }
  }
  return result;
}
