// Arithmetic on rows of numbers. Matrices are Float32Arrays, row after row: (T × C) has T rows of C.

/** How many numbers a tensor of this shape holds. */
function size(shape) {
  return shape.reduce((product, n) => product * n, 1);
}

/** Products of matrices, in the form to read; `FastProducts` in kernel.js has the same, ten times as fast. */
class Products {
  /** A weight matrix (O × I) with a bias (O) or null, ready for `linear`. */
  keep(weight, bias, O) {
    return { weight, bias, O };
  }

  /** The product of rows with the transpose of a kept matrix: x (T × I) -> (T × O). */
  linear(x, T, { weight, bias, O }) {
    const I = x.length / T;
    const y = new Float32Array(T * O);
    for (let t = 0; t < T; t++) {
      for (let o = 0; o < O; o++) y[t * O + o] = dot(x, t * I, weight, o * I, I) + (bias ? bias[o] : 0);
    }
    return y;
  }

  /** a bᵀ: a (n × D), b (m × D) -> (n × m). */
  timesTransposed(a, n, b, m) {
    return Products.prototype.linear(a, n, { weight: b, bias: null, O: m });
  }

  /** a b: a (n × m), b (m × D) -> (n × D). */
  times(a, n, b, m) {
    const D = b.length / m;
    const sums = new Float32Array(n * D);
    for (let t = 0; t < n; t++) {
      for (let s = 0; s < m; s++) {
        const factor = a[t * m + s];
        for (let d = 0; d < D; d++) sums[t * D + d] += factor * b[s * D + d];
      }
    }
    return sums;
  }
}

/** The sum of products of `n` numbers of `a` from `i` on with those of `b` from `j` on. */
function dot(a, i, b, j, n) {
  let sum = 0;
  for (let k = 0; k < n; k++) sum += a[i + k] * b[j + k];
  return sum;
}

/** The sum of two arrays of the same length. */
function add(a, b) {
  const sum = new Float32Array(a.length);
  for (let i = 0; i < a.length; i++) sum[i] = a[i] + b[i];
  return sum;
}

/** Each number of x times a factor. */
function times(x, factor) {
  const y = new Float32Array(x.length);
  for (let i = 0; i < x.length; i++) y[i] = factor * x[i];
  return y;
}

/** The last n rows of x, which has rows of C; the same numbers, no copy. */
function lastRows(x, n, C) {
  return x.subarray(x.length - n * C);
}

/** The columns of each head, H matrices: x (T × C) -> [H] of (T × C / H). */
function splitHeads(x, T, H) {
  const C = x.length / T;
  const D = C / H;
  return Array.from({ length: H }, (_, h) => {
    const head = new Float32Array(T * D);
    for (let t = 0; t < T; t++) {
      for (let d = 0; d < D; d++) head[t * D + d] = x[t * C + h * D + d];
    }
    return head;
  });
}

/** A position's heads side by side: [H] of (T × D) -> (T × H · D). */
function mergeHeads(heads, T) {
  const H = heads.length;
  const D = heads[0].length / T;
  const C = H * D;
  const x = new Float32Array(T * C);
  heads.forEach((head, h) => {
    for (let t = 0; t < T; t++) {
      for (let d = 0; d < D; d++) x[t * C + h * D + d] = head[t * D + d];
    }
  });
  return x;
}

/** Turn `n` scores from `start` on into shares that sum to 1, in place. */
function softmax(scores, start, n) {
  let highest = -Infinity;
  for (let i = start; i < start + n; i++) if (scores[i] > highest) highest = scores[i];
  let sum = 0;
  for (let i = start; i < start + n; i++) {
    const share = Math.exp(scores[i] - highest);
    scores[i] = share;
    sum += share;
  }
  const factor = 1 / sum;
  for (let i = start; i < start + n; i++) scores[i] *= factor;
}

/** -ln of the share that softmax would give to entry `id` of `logits`. */
function nats(logits, id) {
  let highest = -Infinity;
  for (let i = 0; i < logits.length; i++) if (logits[i] > highest) highest = logits[i];
  let sum = 0;
  for (let i = 0; i < logits.length; i++) sum += Math.exp(logits[i] - highest);
  return highest + Math.log(sum) - logits[id];
}

/** The ids of the `n` highest of `values`, highest first; of equal ones the first. */
function highest(values, n) {
  const best = [];
  for (let id = 0; id < values.length; id++) {
    if (best.length === n && values[id] <= values[best[n - 1]]) continue;
    let place = best.length;
    while (place > 0 && values[best[place - 1]] < values[id]) place--;
    best.splice(place, 0, id);
    if (best.length > n) best.pop();
  }
  return best;
}

/**
 * How much of a normal distribution lies below each of -6, -6 + 1/128, … 6: Simpson's rule, step by step.
 * gelu looks values up here, with straight lines between them, and is less than 1e-5 off.
 */
const NORMAL_STEPS = 128;
const NORMAL_END = 6;
const NORMAL_BELOW = (() => {
  const density = (x) => Math.exp((-x * x) / 2) / Math.sqrt(2 * Math.PI);
  const below = new Float64Array(2 * NORMAL_END * NORMAL_STEPS + 1);
  const step = 1 / NORMAL_STEPS;
  for (let n = 1; n < below.length; n++) {
    const end = n * step - NORMAL_END;
    below[n] = below[n - 1] + ((density(end - step) + 4 * density(end - step / 2) + density(end)) * step) / 6;
  }
  return below;
})();

/** x times the share of a normal distribution that lies below x. */
function gelu(x) {
  if (x <= -NORMAL_END) return 0;
  if (x >= NORMAL_END) return x;
  const place = (x + NORMAL_END) * NORMAL_STEPS;
  const n = place | 0;
  return x * (NORMAL_BELOW[n] + (place - n) * (NORMAL_BELOW[n + 1] - NORMAL_BELOW[n]));
}

/** x times its sigmoid. */
function silu(x) {
  return x / (1 + Math.exp(-x));
}
