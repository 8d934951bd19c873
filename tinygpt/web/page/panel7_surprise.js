// Panel 7: what each character of a text costs, in nats.

const STRONGEST_HEAT = 0.6; // opacity of the colour at ln V: the character on top stays readable

/**
 * What `surprise` says of the whole text, window by window, so that the page can do other things in between. A later
 * window begins with the character before it where the first one has <bos>.
 */
function* surpriseByWindow(model, file, text) {
  const characters = Array.from(text);
  const { context_size: size } = model.params;
  for (let start = 0; start < characters.length; start += size) {
    const first = start ? file.vocab.encode(characters[start - 1])[0] : file.BOS;
    const window = characters.slice(start, start + size).join("");
    yield surprise(model, { vocab: file.vocab, BOS: first }, window);
  }
}

PANELS.push({
  id: "surprise",
  title: { zh: "惊讶", en: "Surprise" },
  lead: {
    zh: "模型给真正出现的那个字符多大的概率？惊讶程度是 −ln p，单位是奈特（nat）：早就料到的字接近 0，意外的字很大。整段文字的平均值，就是训练时要压低的那个 loss。",
    en: "How likely did the model hold the character that really came? Its surprise is −ln p, in nats: near 0 for what was expected, large for what was not. The mean over a text is the loss that training brings down.",
  },

  build(root, page) {
    this.page = page;
    this.isOwn = false; // false: follows the text of panel 1
    this.V = page.file.vocab.size;
    this.uniform = Math.log(this.V);
    this.costs = [];
    this.box = make("textarea", { id: "surprise-text", rows: "3", lang: "zh-CN", spellcheck: "false" });
    this.box.addEventListener("input", (event) => event.isComposing || this.takeOwn());
    this.box.addEventListener("compositionend", () => this.takeOwn());
    const row = make("div", { class: "row prompts" });
    button(row, { label: { zh: "用上面的文字", en: "The text above" }, onClick: () => this.takePage() });
    button(row, { label: { zh: "打乱字的顺序", en: "Shuffle the characters" }, onClick: () => this.shuffle() });
    const label = make("label", { for: "surprise-text", say: { zh: "任意一段文字", en: "Any text (in Chinese)" } });
    root.append(label, this.box, row);
    this.facts = addFacts(root, {
      mean: { zh: "这段文字，奈特/字", en: "this text, mean nats" },
      perplexity: { zh: "它的困惑度 e^奈特", en: "its perplexity, e^nats" },
      test: { zh: "测试集，奈特/字", en: "test stories, mean nats" },
      testPerplexity: { zh: "测试集的困惑度", en: "their perplexity" },
    });
    this.addLegend(root);
    this.text = make("div", { class: "heat", lang: "zh-CN", role: "application", tabindex: "0", aria: {
      zh: "每个字的惊讶程度，用左右方向键走动", en: "surprise of each character; walk with the left and right arrow keys",
    } });
    root.append(this.text);
    this.addDetails(root);
    this.progress = make("p", { class: "soft progress" });
    root.append(this.progress);
    this.listen();
  },

  /** The scale from 0 to ln V, and where the mean of this text and that of the test stories lie. */
  addLegend(root) {
    const test = this.page.file.metrics.test.nats_per_token;
    this.meanMark = make("span", { class: "heat-mark", say: { zh: "这段文字", en: "this text" } });
    const testMark = make("span", { class: "heat-mark", say: { zh: "测试集", en: "test stories" } });
    testMark.style.left = this.placeOnScale(test);
    const name = { zh: "颜色标尺：从 0 到均匀瞎猜的惊讶", en: "colour scale: from 0 to the surprise of a uniform guess" };
    root.append(make("div", { class: "heat-scale soft", role: "group", aria: name },
      make("div", { class: "heat-marks" }, this.meanMark),
      make("div", { class: "heat-ramp" }),
      make("div", { class: "heat-marks below" }, testMark),
      make("div", { class: "heat-ends" },
        make("span", { say: { zh: "0：完全料到", en: "0: fully expected" } }),
        make("span", { say: {
          zh: `ln ${this.V} = ${number(this.uniform)}：均匀瞎猜；更大的加下划线`,
          en: `ln ${this.V} = ${number(this.uniform)}: a uniform guess; above it: underlined`,
        } }),
      ),
    ));
    say(this.facts.test, number(test));
    say(this.facts.testPerplexity, number(Math.exp(test), 1));
  },

  placeOnScale(cost) {
    return `${(100 * Math.min(cost, this.uniform)) / this.uniform}%`;
  },

  addDetails(root) {
    this.detail = make("p", { class: "detail" });
    const card = make("div", { class: "card" }, this.detail);
    const title = { zh: "模型在这里最看好的五个：", en: "The five that the model held likeliest here:" };
    card.append(make("p", { class: "soft", say: title }));
    this.instead = new Bars(card, { name: { zh: "最看好的五个", en: "the five likeliest" }, rows: 5 });
    root.append(card);
  },

  listen() {
    walkCells(this.text, {
      at: (event) => (event.target.dataset.i ? [0, Number(event.target.dataset.i)] : null),
      size: () => [1, this.costs.length],
      place: () => [0, this.chosen],
      move: (_, i, aloud) => this.costs[i] && this.choose(i, aloud),
      leave: () => {},
    });
  },

  update(root, page, changed) {
    if (changed.has("text") && !this.isOwn) this.takePage();
  },

  takePage() {
    this.isOwn = false;
    this.box.value = this.page.state.text;
    this.start();
  },

  takeOwn() {
    this.isOwn = true;
    this.start();
  },

  shuffle() {
    const characters = Array.from(this.box.value);
    const random = new MersenneTwister(characters.length);
    for (let i = characters.length - 1; i > 0; i--) {
      const j = Math.floor(random.uniform() * (i + 1));
      [characters[i], characters[j]] = [characters[j], characters[i]];
    }
    this.box.value = characters.join("");
    this.takeOwn();
  },

  /** Begins with the text in the box; what was still under way is dropped. */
  start() {
    cancelAnimationFrame(this.pending);
    this.costs = [];
    this.chosen = 0;
    this.text.replaceChildren();
    this.length = Array.from(this.box.value).length;
    this.work = surpriseByWindow(this.page.file.trained, this.page.file, this.box.value);
    this.sayFacts();
    if (this.length) this.pending = requestAnimationFrame(() => this.frame());
    else this.showEmpty();
  },

  /** Reads for a part of the frame, one window at least, and shows what is known by then. */
  frame() {
    const end = performance.now() + MS_OF_A_FRAME;
    const fresh = [];
    let isDone = false;
    while (!isDone && performance.now() < end) {
      const { value, done } = this.work.next();
      isDone = done;
      if (!done) fresh.push(...value);
    }
    this.text.append(...fresh.map((cost, i) => this.addCharacter(cost, this.costs.length + i)));
    this.costs.push(...fresh);
    this.sayFacts();
    if (isDone) this.choose(this.mostSurprising());
    else this.pending = requestAnimationFrame(() => this.frame());
  },

  addCharacter({ char, id, nats: cost }, i) {
    const { UNK, params } = this.page.file;
    const character = make("span", { class: "character", "data-i": i }, char === "\n" ? "⏎\n" : char);
    character.style.setProperty("--heat", `${100 * STRONGEST_HEAT * Math.min(1, cost / this.uniform)}%`);
    character.classList.toggle("beyond", cost > this.uniform);
    character.classList.toggle("unknown", id === UNK);
    character.classList.toggle("window-start", i > 0 && i % params.model.context_size === 0);
    return character;
  },

  mostSurprising() {
    return this.costs.reduce((best, { nats: cost }, i) => (cost > this.costs[best].nats ? i : best), 0);
  },

  sayFacts() {
    const n = this.costs.length;
    const mean = this.costs.reduce((sum, { nats: cost }) => sum + cost, 0) / n;
    say(this.facts.mean, n ? number(mean) : "–");
    say(this.facts.perplexity, n ? number(Math.exp(mean), 1) : "–");
    this.meanMark.hidden = !n;
    this.meanMark.style.left = this.placeOnScale(n ? mean : 0);
    this.sayProgress(n);
  },

  sayProgress(n) {
    const { context_size: size } = this.page.file.params.model;
    const windows = Math.ceil(this.length / size);
    const unknown = this.costs.reduce((sum, { id }) => sum + (id === this.page.file.UNK), 0);
    const notes = [];
    if (n < this.length) {
      notes.push({ zh: `读到 ${n} / ${this.length} 个字符。`, en: `${n} of ${this.length} characters are read.` });
    }
    if (windows > 1) {
      notes.push({
        zh: `文字比窗口长：分成 ${windows} 个窗口来读，每个最多 ${size} 个，竖线处重新开始，看不到前一个窗口。`,
        en: `The text is longer than the window: it is read in ${windows} windows of at most ${size}. At a vertical line a new one starts, which does not see the one before.`,
      });
    }
    if (unknown) {
      notes.push({
        zh: `虚线框里的 ${unknown} 个字符不在词表里，按 <unk> 计算。`,
        en: `${unknown} in dashed frames ${unknown === 1 ? "is" : "are"} not in the vocabulary: the cost is that of <unk>.`,
      });
    }
    say(this.progress, joined(notes, "", " "));
  },

  showEmpty() {
    const note = { zh: "还没有文字：在上面写点什么。", en: "No text yet: write something above." };
    this.detail.replaceChildren(make("span", { say: note }));
    this.instead.draw([]);
  },

  /** Shows character i: its nats, its probability and the five that were likeliest; aloud: for screen readers, too. */
  choose(i, aloud = false) {
    const character = this.text.children[i];
    this.text.querySelector(".chosen")?.classList.remove("chosen");
    character.classList.add("chosen");
    this.chosen = i;
    const { char, id, nats: cost, top } = this.costs[i];
    const { UNK } = this.page.file;
    const sign = id === UNK ? char : this.page.sign(id);
    const p = Math.exp(-cost);
    const as = id === UNK ? { zh: "（按 <unk> 计算）", en: " (as <unk>)" } : { zh: "", en: "" };
    const numbers = {
      zh: `p = ${exact(p)}，−ln p = ${number(cost, 3)} 奈特${as.zh}`,
      en: `p = ${exact(p)}, −ln p = ${number(cost, 3)} nats${as.en}`,
    };
    saySign(this.detail, { zh: `第 ${i + 1} 个字符`, en: `Character ${i + 1}` }, sign, numbers);
    if (aloud) {
      say(document.getElementById("live"), joined([sign, numbers], "：", ": "));
      character.scrollIntoView({ block: "nearest" });
    }
    this.instead.draw(top.map(([best, share]) => {
      return { label: this.page.sign(best), share, text: percent(share), picked: best === id };
    }));
  },
});

/** A probability with three digits that say something: "42.0%", "0.00312%". */
function exact(p) {
  return `${(100 * p).toPrecision(3)}%`;
}
