// Panel 4: residual, norm, MLP. How one position's vector changes, and what would be predicted from it on the way.

const N_GUESSES = 5;
const N_ACTIVATIONS = 10;

PANELS.push({
  id: "layers",
  title: { zh: "逐层", en: "Layers" },
  lead: {
    zh: "每个位置有一个向量，从下到上穿过所有层。每一层只往上加：注意力加上从别处读来的，MLP 加上自己算出来的。这条一路相加的主干叫残差流。",
    en:
      "Every position has one vector that goes through all layers. A layer only adds to it: attention adds what it " +
      "read elsewhere, the MLP what it worked out itself. What adds up on the way is called the residual stream.",
  },

  build(root, page) {
    this.page = page;
    this.ribbon = new Ribbon(root, page);
    this.switched = make("p", { class: "soft switched" });
    root.append(this.switched);
    this.addStream(root);
    this.addGuesses(root);
    this.addLayer(root);
    this.addActivations(root);
  },

  addStream(root) {
    root.append(make("h3", { say: { zh: "主干上的向量", en: "The vector on its way" } }));
    const card = make("div", { class: "card" });
    this.stream = new Strips(card, {
      name: { zh: "各层之后的向量", en: "the vector after each layer" },
    });
    const below = make("div", { class: "row" });
    card.append(below);
    this.streamScale = new Scale(below);
    const label = { zh: "每条按自己的最大值上色", en: "colour each by its own largest value" };
    toggle(below, { label, on: false, onChange: (on) => this.scaleStream(on) });
    root.append(card);
  },

  addGuesses(root) {
    root.append(make("h3", { say: { zh: "如果到这里就猜", en: "If the guess were made here" } }));
    root.append(make("p", { say: {
      zh: "每层出来的向量通道数都一样，所以最后的归一化和 LM head 可以提前来读：看模型走到那一层之后，已经猜到了什么。",
      en:
        "All these vectors have the same number of channels, so the final norm and the LM head can read any of " +
        "them: what has the model guessed after that layer?",
    } }));
    this.guesses = make("table", { class: "guesses" });
    root.append(make("div", { class: "wide" }, this.guesses));
    this.actual = make("p", { class: "soft notes" });
    root.append(this.actual);
  },

  addLayer(root) {
    const { page } = this;
    root.append(make("h3", { say: { zh: "一层里面", en: "Inside one layer" } }));
    root.append(make("p", { say: {
      zh: "读之前先归一化：把向量拉回同样的大小，再给每个通道乘上学到的缩放。结果加在原来的向量上，不是归一化之后的那个。每条按自己的最大值上色，长度写在右边。",
      en:
        "Before it is read, the vector is normed: brought to one size, then scaled channel by channel as learned. " +
        "The result is added to the vector as it was, not to the normed one. Each strip is coloured by its own " +
        "largest value; its length stands at the right.",
    } }));
    const n_layer = page.file.params.model.n_layer;
    const options = Array.from({ length: n_layer }, (_, value) => ({ value, label: String(value + 1) }));
    const onChange = (value) => page.set({ layer: value });
    this.layer = choice(root, { label: { zh: "层", en: "Layer" }, options, value: page.state.layer, onChange });
    const card = make("div", { class: "card" });
    this.inside = new Strips(card, { name: { zh: "一层里的各个向量", en: "the vectors inside one layer" } });
    root.append(card);
  },

  addActivations(root) {
    this.activationsTitle = make("h3");
    this.activationsText = make("p");
    root.append(this.activationsTitle, this.activationsText);
    const name = { zh: "MLP 里最大的激活值", en: "the largest activations of the MLP" };
    this.activations = new Bars(root, { name, rows: N_ACTIVATIONS });
  },

  update(root, page, changed) {
    this.ribbon.update(changed);
    this.layer.set(page.state.layer);
    if (!["ids", "position", "layer", "causal", "scaled", "theme"].some((key) => changed.has(key))) return;
    this.trace = page.trace();
    this.block = this.trace.blocks[page.state.layer];
    this.drawSwitches();
    this.drawStream();
    this.drawGuesses();
    this.drawInside();
    this.drawActivations();
  },

  /** The chosen position's row of a matrix (T × width). */
  row(matrix) {
    return rowOf(matrix, this.page.state.position, matrix.length / this.trace.T);
  },

  drawSwitches() {
    const { causal, scaled } = this.page.state;
    say(this.switched, causal && scaled ? "" : {
      zh: "第 3 步的开关改过：这里的数字也是那样算出来的。",
      en: "The switches of step 3 are not as trained: these numbers are computed that way, too.",
    });
  },

  /** One scale for all layers shows how the vector grows, a scale for each what is in it. */
  scaleStream(own) {
    this.own = own;
    this.drawStream();
  },

  drawStream() {
    const rows = [{ label: { zh: "输入", en: "input" }, vector: this.row(this.trace.input) }];
    this.trace.blocks.forEach((block, i) => {
      const attention = { zh: `第 ${i + 1} 层注意力`, en: `layer ${i + 1}, attention` };
      const mlp = { zh: `第 ${i + 1} 层 MLP`, en: `layer ${i + 1}, MLP` };
      rows.push({ sign: "+", label: attention, vector: this.row(block.afterAttention) });
      rows.push({ sign: "+", label: mlp, vector: this.row(block.output) });
    });
    this.stream.draw(rows, this.own ? "own" : undefined);
    this.streamScale.draw(this.own ? null : largestOf(...rows.map(({ vector }) => vector)));
  },

  drawGuesses() {
    const { page, trace } = this;
    const { position, ids } = page.state;
    const stages = [{ label: { zh: "输入", en: "input" }, x: this.row(trace.input) }];
    trace.blocks.forEach((block, i) => {
      stages.push({ label: { zh: `第 ${i + 1} 层`, en: `layer ${i + 1}` }, x: this.row(block.output) });
    });
    const next = ids[position + 1];
    const rows = stages.map(({ label, x }) => {
      return this.guessRow(label, odds(page.file.trained.headLogits(x), { temperature: 1 }), next);
    });
    this.guesses.replaceChildren(this.guessTitles(next), ...rows);
    const sign = page.state.signs[position + 1];
    say(this.actual, next === undefined
      ? { zh: "这是最后一个位置：下一个字还没有写。", en: "This is the last position: the next character is not written yet." }
      : { zh: `文中的下一个字是「${sign}」。`, en: `The next character in the text is “${sign}”.` });
  },

  guessTitles(next) {
    const titles = ["", ...Array.from({ length: N_GUESSES }, (_, i) => String(i + 1))];
    if (next !== undefined) titles.push({ zh: "实际", en: "actual" });
    return make("tr", {}, ...titles.map((title) => make("th", { scope: "col", say: title })));
  },

  guessRow(label, shares, next) {
    const row = make("tr", {}, make("th", { scope: "row", say: label }));
    const best = highest(shares, N_GUESSES);
    for (const id of best) row.append(this.guessCell(id, shares[id], id === next));
    if (next !== undefined) row.append(this.guessCell(next, shares[next], true));
    return row;
  },

  guessCell(id, share, isNext) {
    const cell = make("td", { class: isNext ? "guess picked" : "guess" });
    cell.append(make("span", { lang: "zh-CN" }, this.page.sign(id)), make("span", { class: "number" }, percent(share)));
    cell.style.setProperty("--share", share);
    return cell;
  },

  drawInside() {
    const { params } = this.page.file;
    const { block } = this;
    const norm = { zh: "归一化后", en: "normed" };
    const shifted = { zh: "混入前一个位置后", en: "with a share of the position before" };
    const rows = [{ label: { zh: "进来的向量 x", en: "the vector that comes in, x" }, vector: this.row(block.input) }];
    rows.push({ sign: "↳", label: norm, vector: this.row(block.norm1) });
    if (params.model.token_shift) rows.push({ sign: "↳", label: shifted, vector: this.row(block.shifted1) });
    rows.push({ sign: "+", label: { zh: "注意力加上的", en: "added by attention" }, vector: this.row(block.attentionOut) });
    rows.push({ sign: "=", label: { zh: "注意力之后", en: "after attention" }, vector: this.row(block.afterAttention) });
    rows.push({ sign: "↳", label: norm, vector: this.row(block.norm2) });
    if (params.model.token_shift) rows.push({ sign: "↳", label: shifted, vector: this.row(block.shifted2) });
    rows.push({ sign: "+", label: { zh: "MLP 加上的", en: "added by the MLP" }, vector: this.row(block.mlpOut) });
    rows.push({ sign: "=", label: { zh: "出去的向量", en: "the vector that goes out" }, vector: this.row(block.output) });
    this.inside.draw(rows, "own");
  },

  drawActivations() {
    const wide = this.row(this.block.mlpWide);
    const n = wide.length;
    const C = this.page.file.params.model.n_embd;
    const kind = { gelu: "GELU", relu2: "ReLU²", swiglu: "SwiGLU" }[this.page.file.params.model.mlp];
    const largest = largestOf(wide);
    const order = highest(wide.map(Math.abs), N_ACTIVATIONS);
    const strong = wide.filter((x) => Math.abs(x) >= largest / 4).length;
    say(this.activationsTitle, { zh: "MLP 里最大的激活值", en: "The largest activations of the MLP" });
    say(this.activationsText, {
      zh: `MLP 把 ${C} 个数展宽成 ${n} 个，经过 ${kind}，再收回来。多数通道几乎不动：这里只有 ${strong} 个达到最大值的四分之一。`,
      en:
        `The MLP widens ${C} numbers to ${n}, bends them with ${kind} and narrows them again. ` +
        `Most channels hardly move: ${strong} of them reach a quarter of the largest here.`,
    });
    this.activations.draw(order.map((channel) => ({
      label: `#${channel}`,
      share: largest ? Math.abs(wide[channel]) / largest : 0,
      text: number(wide[channel], 2),
      negative: wide[channel] < 0,
    })));
  },
});
