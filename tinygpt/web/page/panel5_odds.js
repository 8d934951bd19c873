// Panel 5: scores -> temperature -> top-k -> odds, and a draw.

const N_LIKELIEST = 20; // rows

/** Sliders for temperature and top-k; their values stand in page.state, where panels 5 and 6 share them. */
class SamplingControls {
  constructor(root, page) {
    const { sample } = page.file.params;
    page.state.temperature ??= Math.min(sample.temperature, 2);
    page.state.top_k ??= Math.min(sample.top_k || page.file.vocab.size, page.file.vocab.size);
    this.page = page;
    this.choices = topKChoices(page.file.vocab.size, page.state.top_k);
    this.temperature = slider(root, {
      ...{ label: { zh: "温度 T", en: "Temperature T" }, min: 0, max: 2, step: 0.05, value: page.state.temperature },
      show: (x) => x.toFixed(2),
      onInput: (temperature) => page.set({ temperature }),
    });
    this.top_k = slider(root, {
      ...{ label: "top-k", min: 0, max: this.choices.length - 1, step: 1, value: 0 },
      show: (i) => this.showTopK(i),
      onInput: (i) => page.set({ top_k: this.choices[i] }),
    });
    this.update();
  }

  showTopK(i) {
    const k = this.choices[i];
    return k === this.page.file.vocab.size ? { zh: `${k}（全部）`, en: `${k} (all)` } : String(k);
  }

  /** Follows the sliders of the other panel. */
  update() {
    this.temperature.set(this.page.state.temperature);
    this.top_k.set(this.choices.indexOf(this.page.state.top_k));
  }
}

/** The stops of the top-k slider: each number up to 20, then wider and wider steps up to V; `wished` among them. */
function topKChoices(V, wished) {
  const choices = new Set([wished, V]);
  for (let k = 1; k < V; k += k < 20 ? 1 : 10 ** Math.floor(Math.log10(k) - 0.3)) choices.add(k);
  return [...choices].sort((a, b) => a - b);
}

/** A field for a whole number: {value}, always from min to max. */
class NumberField {
  constructor(root, { label, value, min, max }) {
    const id = `control-${++controls}`;
    this.input = make("input", { id, type: "number", min, max, step: 1, value, inputmode: "numeric" });
    this.limit = (x) => Math.max(min, Math.min(max, Math.round(x) || 0));
    this.input.addEventListener("change", () => (this.value = this.value));
    root.append(make("div", { class: "control field" }, make("label", { for: id, say: label }), this.input));
  }

  get value() {
    return this.limit(Number(this.input.value));
  }

  set value(x) {
    this.input.value = this.limit(x);
  }
}

const LARGEST_SEED = 2 ** 32 - 1;

/** -Σ p ln p, in nats. */
function entropy(probabilities) {
  let sum = 0;
  for (const p of probabilities) if (p > 0) sum -= p * Math.log(p);
  return sum;
}

/** Lets the arrow keys go up and down in a list of buttons that is one stop for the Tab key. */
function arrowKeys(list, buttonsOf) {
  const enter = (chosen) => buttonsOf().forEach((each) => (each.tabIndex = each === chosen ? 0 : -1));
  list.addEventListener("focusin", (event) => enter(event.target.closest("button")));
  list.addEventListener("keydown", (event) => {
    const buttons = buttonsOf();
    const place = buttons.indexOf(document.activeElement);
    const target = {
      ...{ ArrowUp: place - 1, ArrowLeft: place - 1, ArrowDown: place + 1, ArrowRight: place + 1 },
      ...{ Home: 0, End: buttons.length - 1 },
    }[event.key];
    if (target === undefined) return;
    event.preventDefault();
    buttons[Math.max(0, Math.min(target, buttons.length - 1))].focus();
  });
  enter(buttonsOf()[0]);
}

PANELS.push({
  id: "odds",
  title: { zh: "概率", en: "Odds" },
  lead: {
    zh: "读完文字，模型给词表里的每个字符一个分数。分数除以温度 T：T 小，差距变大；T 大，差距变小。top-k 只让分数最高的 k 个留下，softmax 再把留下的分数变成加起来等于 1 的概率。点一个字符，它就接到文字后面。",
    en: "After the text, the model has a score for every character of the vocabulary. Scores are divided by the temperature T: a small T widens the gaps, a large T narrows them. top-k lets only the k highest stay, and softmax turns what stayed into odds that sum to 1. Click a character to append it to the text.",
  },

  build(root, page) {
    this.page = page;
    const settings = make("div", { class: "card row settings" });
    this.controls = new SamplingControls(settings, page);
    this.ending = make("p", { class: "ending", lang: "zh-CN" });
    this.note = make("p", { class: "soft odds-note" });
    const head = make("div", { class: "odds-row odds-head soft" }, make("span", { say: { zh: "字符", en: "next" } }));
    for (const title of [{ zh: "分数 z", en: "score z" }, "z ÷ T", { zh: "概率", en: "odds" }]) {
      head.append(make("span", { say: title }));
    }
    this.list = make("ol", { class: "odds", aria: { zh: "最可能的字符", en: "the likeliest characters" } });
    this.rows = Array.from({ length: Math.min(N_LIKELIEST, page.file.vocab.size) }, (_, i) => this.addRow(i));
    this.others = make("p", { class: "soft others" });
    root.append(settings, this.ending, head, this.list, this.others, this.note);
    this.facts = addFacts(root, {
      kept: { zh: "留下的候选", en: "candidates that stay" },
      before: { zh: "它们在截断前合占", en: "share before the cut" },
      sum: { zh: "它们现在合计", en: "their sum now" },
      entropy: { zh: "熵 H（奈特）", en: "entropy H (nats)" },
      equal: { zh: "e^H：像均匀地挑几个", en: "e^H: like so many" },
    });
    this.addDraw(root);
    arrowKeys(this.list, () => this.rows.map(({ button }) => button));
  },

  addRow(i) {
    const cells = Array.from({ length: 3 }, () => {
      const [fill, value] = [make("span", { class: "fill" }), make("span", { class: "number" })];
      return { fill, value, cell: make("span", { class: "cell" }, fill, value) };
    });
    const sample = make("span", { class: "sample", lang: "zh-CN" });
    const row = make("button", { type: "button", class: "odds-row", onclick: () => this.append(this.likeliest[i]) });
    row.append(sample, ...cells.map(({ cell }) => cell));
    this.list.append(make("li", {}, row));
    return { button: row, sample, cells };
  },

  addDraw(root) {
    const row = make("div", { class: "row draw" });
    this.seed = new NumberField(row, {
      ...{ label: { zh: "种子", en: "Seed" }, value: this.page.file.params.sample.seed, min: 0, max: LARGEST_SEED },
    });
    button(row, { label: { zh: "抽一个", en: "Draw one" }, onClick: () => this.draw() }).classList.add("main");
    this.drawn = make("p", { class: "soft drawn", "aria-live": "polite" });
    root.append(row, this.drawn);
  },

  update(root, page, changed) {
    if (["text", "causal", "scaled"].some((key) => changed.has(key))) {
      this.readScores();
      this.sayEnding();
    }
    this.controls.update();
    this.show();
  },

  /** The scores of the next character, and who has the highest. */
  readScores() {
    const V = this.page.file.vocab.size;
    const { logits, T } = this.page.trace();
    this.logits = rowOf(logits, T - 1, V);
    this.likeliest = highest(this.logits, this.rows.length);
  },

  sayEnding() {
    const { signs, causal, scaled, cut } = this.page.state;
    const ending = signs.slice(-12).join("");
    this.ending.textContent = `${signs.length > 12 || cut ? "⋯" : ""}${ending}`;
    this.ending.append(make("b", {}, "?"));
    const isModel = causal && scaled;
    say(this.note, isModel ? "" : {
      zh: "第 3 步里关掉了掩码或缩放，所以这里不是模型训练时的概率。",
      en: "Step 3 has the mask or the scaling switched off: these are not the odds that the model was trained for.",
    });
  },

  show() {
    const { temperature, top_k } = this.page.state;
    this.odds = odds(this.logits, { temperature, top_k });
    const z = this.likeliest.map((id) => this.logits[id]);
    const [low, high] = [Math.min(0, ...z), Math.max(0, ...z) || 1];
    // Both columns of scores have the same scale, with room for twice the largest: T = 0.5.
    const share = (x) => Math.max(-1, Math.min(1, x / (2 * (high - low))));
    const isTooLong = (x) => x > 2 * high || x < 2 * low;
    this.list.style.setProperty("--zero-line", `${(100 * -low) / (high - low)}%`);
    this.likeliest.forEach((id, i) => {
      const p = this.odds[id];
      const isCut = i >= top_k;
      const scaled = temperature ? z[i] / temperature : (i ? 0 : 2 * high);
      this.showRow(this.rows[i], id, isCut, [
        { share: share(z[i]), text: number(z[i]) },
        { share: share(scaled), text: temperature ? number(scaled) : "—", isTooLong: isTooLong(scaled) },
        { share: p, text: isCut ? "0" : percent(p) },
      ]);
    });
    this.showFacts(temperature, top_k);
  },

  showRow({ button: row, sample, cells }, id, isCut, values) {
    const sign = this.nameOf(id);
    sample.textContent = sign;
    sample.classList.toggle("special", sign.length > 2);
    row.classList.toggle("cut", isCut);
    cells.forEach(({ fill, value }, i) => {
      fill.style.transform = `scaleX(${values[i].share})`;
      fill.classList.toggle("negative", values[i].share < 0);
      fill.classList.toggle("too-long", Boolean(values[i].isTooLong));
      value.textContent = values[i].text;
    });
    const [z, scaled, p] = values.map(({ text }) => text);
    aria(row, {
      zh: `${sign}：分数 ${z}，除以温度后 ${scaled}，概率 ${p}${isCut ? "，被 top-k 截掉" : ""}`,
      en: `${sign}: score ${z}, over the temperature ${scaled}, odds ${p}${isCut ? ", cut by top-k" : ""}`,
    });
  },

  /** The sign of an entry; the specials are written out. */
  nameOf(id) {
    const entry = this.page.file.vocab.entries[id];
    return entry.startsWith("<") && entry.length > 2 ? entry : this.page.sign(id);
  },

  showFacts(temperature, top_k) {
    const V = this.logits.length;
    const whole = odds(this.logits, { temperature });
    const lowestKept = this.logits[highest(this.logits, temperature ? top_k : 1).at(-1)];
    const isKept = (id) => this.logits[id] >= lowestKept; // of those with the same score all stay
    const kept = this.logits.reduce((n, _, id) => n + isKept(id), 0);
    const before = whole.reduce((sum, p, id) => sum + (isKept(id) ? p : 0), 0);
    const sum = this.odds.reduce((total, p) => total + p, 0);
    const listed = this.likeliest.reduce((total, id) => total + this.odds[id], 0);
    const H = entropy(this.odds);
    say(this.facts.kept, { zh: `${kept} / ${V}`, en: `${kept} of ${V}` });
    say(this.facts.before, percent(before));
    say(this.facts.sum, number(sum, 3));
    say(this.facts.entropy, number(H, 3));
    say(this.facts.equal, number(Math.exp(H), 1));
    const others = V - this.likeliest.length;
    say(this.others, {
      zh: `没有列出的 ${others} 个合占 ${percent(Math.max(0, sum - listed))}`,
      en: `the ${others} that are not listed share ${percent(Math.max(0, sum - listed))}`,
    });
  },

  /** Appends a character to the text; <eos>, <bos> and <unk> have none. Says whether it could. */
  append(id) {
    const character = this.page.file.vocab.decode([id]);
    if (character) this.page.set({ text: this.page.state.text + character });
    else {
      const isEnd = id === this.page.file.EOS;
      saySign(this.drawn, "", this.nameOf(id), {
        zh: isEnd ? "：故事到此结束，没有字可接。" : "：这不是一个字符，接不上。",
        en: isEnd ? ": the story ends here, there is nothing to append." : ": this is no character, it cannot be appended.",
      });
    }
    return Boolean(character);
  },

  /** Draws with the seed in the field, appends, and puts the next seed there. */
  draw() {
    const seed = this.seed.value;
    const id = draw(this.odds, new MersenneTwister(seed));
    const [sign, p] = [this.nameOf(id), percent(this.odds[id])];
    if (!this.append(id)) return;
    this.seed.value = seed + 1;
    saySign(this.drawn, { zh: `种子 ${seed} 抽到了`, en: `Seed ${seed} drew` }, sign, {
      zh: `，概率 ${p}，接在后面。`,
      en: `, odds ${p}; it was appended.`,
    });
  },
});

/** Text, a character of the model, text. */
function saySign(element, before, sign, after) {
  const shown = make("b", { class: "sign-in-text", lang: "zh-CN" }, sign);
  element.replaceChildren(make("span", { say: before }), shown, make("span", { say: after }));
}

/** A line of named numbers: addFacts(root, {key: TEXT}) -> {key: element to say the number in}. */
function addFacts(root, names) {
  const list = make("dl", { class: "facts" });
  root.append(list);
  return Object.fromEntries(Object.entries(names).map(([key, title]) => {
    const value = make("dd", { class: "number" });
    list.append(make("div", {}, make("dt", { class: "soft", say: title }), value));
    return [key, value];
  }));
}
