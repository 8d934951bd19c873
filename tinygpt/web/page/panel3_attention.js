// Panel 3: attention. q, k, v; the scores; the mask; softmax; the weighted sum; all heads; with rope the rotation.

const HIGHEST_SHARES = 4; // values that the weighted sum shows one by one; the rest as one strip

PANELS.push({
  id: "attention",
  title: { zh: "注意力", en: "Attention" },
  lead: {
    zh: "每个位置从自己的向量算出三个短向量：查询 q（想找什么）、键 k（凭什么被找到）、值 v（交出什么）。查询和键的点积就是分数，决定从哪里读多少。",
    en:
      "From its own vector every position computes three short ones: a query q (what it looks for), a key k (what " +
      "it can be found by) and a value v (what it hands over). The dot product of a query and a key is a score; " +
      "the scores decide how much is read from where.",
  },

  build(root, page) {
    this.page = page;
    this.column = 0; // the key's position in the picked cell; the row is the chosen position
    this.ribbon = new Ribbon(root, page);
    this.addControls(root);
    this.addVectors(root);
    this.addMatrices(root);
    this.addDotProduct(root);
    this.addSum(root);
    this.addHeads(root);
    if (page.file.params.model.position === "rope") this.rotation = new Rotation(root, page);
  },

  addControls(root) {
    const { page } = this;
    const { n_layer, n_head } = page.file.params.model;
    const row = make("div", { class: "row" });
    const numbers = (n) => Array.from({ length: n }, (_, value) => ({ value, label: String(value + 1) }));
    const layer = { label: { zh: "层", en: "Layer" }, options: numbers(n_layer), value: page.state.layer };
    const head = { label: { zh: "头", en: "Head" }, options: numbers(n_head), value: page.state.head };
    this.layer = choice(row, { ...layer, onChange: (value) => page.set({ layer: value }) });
    this.head = choice(row, { ...head, onChange: (value) => page.set({ head: value }) });
    root.append(row);
  },

  addVectors(root) {
    this.vectorsTitle = make("h3");
    root.append(this.vectorsTitle);
    const card = make("div", { class: "card" });
    this.vectors = new Strips(card, { name: { zh: "q、k、v 的色条", en: "strips of q, k and v" } });
    root.append(card);
  },

  addMatrices(root) {
    const { page } = this;
    root.append(make("h3", { say: { zh: "分数变成权重", en: "From scores to weights" } }));
    root.append(make("p", { say: {
      zh:
        "一行是提问的位置，一列是被问的位置。因果遮挡不让任何位置看后面的字；除以 √D 让分数不会随通道数 D 变大；softmax 再把一行变成加起来等于 1 的权重，它只看一行里分数的差。拨动开关，" +
        "看看少了它们会怎样；点一个格子，看它怎样算出来。",
      en:
        "A row is the position that asks, a column the one that is asked. The causal mask lets no position see " +
        "what comes after it; dividing by √D keeps scores from growing with D, the number of channels; softmax " +
        "turns each row into weights that sum to 1, and only the differences within a row count. Switch them off " +
        "and see what happens; click a cell to see how it is computed.",
    } }));
    const switches = make("div", { class: "row" });
    const causal = { zh: "因果遮挡", en: "causal mask" };
    const scaled = { zh: "除以 √D", en: "divide by √D" };
    this.causal = toggle(switches, { label: causal, on: true, onChange: (on) => page.set({ causal: on }) });
    this.scaled = toggle(switches, { label: scaled, on: true, onChange: (on) => page.set({ scaled: on }) });
    root.append(switches);

    const columns = make("div", { class: "columns" });
    const [left, right] = [make("div"), make("div")];
    this.scoresTitle = make("p", { class: "formula" });
    left.append(this.scoresTitle);
    const title = { zh: "权重 = softmax(分数)，一行一行算", en: "weights = softmax(scores), row by row" };
    right.append(make("p", { class: "formula", say: title }));
    const onPick = (row, column) => this.pick(row, column);
    this.scores = new Matrix(left, {
      name: { zh: "分数矩阵。方向键走动，回车选中", en: "matrix of scores; arrow keys to move, Enter to pick" },
      tell: (row, column) => this.tellScore(row, column),
      onPick,
    });
    this.scoresScale = new Scale(left);
    this.weights = new Matrix(right, {
      name: { zh: "权重矩阵。方向键走动，回车选中", en: "matrix of weights; arrow keys to move, Enter to pick" },
      tell: (row, column) => this.tellWeight(row, column),
      onPick,
    });
    this.weightsScale = new Scale(right, { fromZero: true });
    this.weightsScale.draw(1, 0);
    columns.append(left, right);
    root.append(columns);
  },

  addDotProduct(root) {
    root.append(make("h3", { say: { zh: "一个格子里的算术", en: "The arithmetic of one cell" } }));
    this.cellTitle = make("p", { class: "cell-title" });
    this.arithmetic = make("ol", { class: "arithmetic formula" });
    const card = make("div", { class: "card" });
    this.products = new Strips(card, { name: { zh: "q、k 和逐项乘积", en: "q, k and their products" } });
    this.terms = make("ul", { class: "terms formula" });
    const terms = make("details", { class: "card" });
    this.termsTitle = make("summary");
    terms.append(this.termsTitle, this.terms);
    root.append(this.cellTitle, this.arithmetic, card, terms);
  },

  addSum(root) {
    root.append(make("h3", { say: { zh: "按权重把值加起来", en: "The values, weighted and added up" } }));
    root.append(make("p", { say: {
      zh: "每个位置的值乘上它的权重再相加，就是这个头读到的东西。各个头的结果并排放在一起，经过一次线性变换，加回主干（第 4 步）。",
      en:
        "Each position's value times its weight, all added up: that is what this head reads. The heads' results " +
        "stand side by side, go through a linear map and are added to the residual stream (step 4).",
    } }));
    const card = make("div", { class: "card weighted-sum" });
    this.sum = new Strips(card, { name: { zh: "加权的值和它们的和", en: "weighted values and their sum" } });
    root.append(card);
  },

  addHeads(root) {
    const { n_head } = this.page.file.params.model;
    this.headsTitle = make("h3");
    root.append(this.headsTitle);
    root.append(make("p", { say: {
      zh: "每个头有自己的投影，没有人给它们分工。对角线深，是在看自己；下面那条斜线深，是在看前一个字；第一列深，是在看开头。",
      en:
        "Each head has projections of its own, and nobody told them what to do. A strong diagonal looks at itself, " +
        "the line below it at the character before, a strong first column at the beginning.",
    } }));
    const row = make("div", { class: "heads" });
    this.heads = Array.from({ length: n_head }, (_, head) => {
      const canvas = make("canvas");
      const text = make("span", { say: { zh: `头 ${head + 1}`, en: `head ${head + 1}` } });
      const onclick = () => this.page.set({ head });
      const choose = make("button", { type: "button", class: "head", onclick }, canvas, text);
      row.append(choose);
      return { choose, canvas };
    });
    paintOnResize(row, () => this.drawHeads());
    root.append(row);
  },

  update(root, page, changed) {
    this.ribbon.update(changed);
    const { layer, head, causal, scaled } = page.state;
    this.layer.set(layer);
    this.head.set(head);
    this.causal.set(causal);
    this.scaled.set(scaled);
    this.block = page.trace().blocks[layer];
    const moved = ["ids", "position", "layer", "head"].some((key) => changed.has(key));
    if (moved && !this.picking) this.column = this.mostRead();
    this.draw();
  },

  /** The cell (row, column) of both matrices is to be explained. */
  pick(row, column) {
    this.picking = true;
    this.column = column;
    this.page.set({ position: row });
    this.picking = false;
    this.draw();
  },

  /** The position that the chosen one reads most from. */
  mostRead() {
    return highest(rowOf(this.block.weights[this.page.state.head], this.page.state.position, this.T), 1)[0];
  },

  get T() {
    return this.page.state.ids.length;
  },

  get D() {
    const { n_embd, n_head } = this.page.file.params.model;
    return n_embd / n_head;
  },

  isHidden(row, column) {
    return this.page.state.causal && column > row;
  },

  draw() {
    this.drawVectors();
    this.drawMatrices();
    this.drawDotProduct();
    this.drawSum();
    this.drawHeads();
    this.rotation?.draw(this.block, this.page.state.head, this.page.state.position, this.column);
  },

  drawVectors() {
    const { head, position, signs } = this.page.state;
    const at = (vectors) => rowOf(vectors[head], position, this.D);
    const { q, k, v } = this.block;
    say(this.vectorsTitle, {
      zh: `位置 ${position}「${signs[position]}」的查询、键、值`,
      en: `Query, key and value of position ${position} “${signs[position]}”`,
    });
    const normed = this.page.file.params.model.qk_norm ? { zh: "，归一化后", en: ", normed" } : "";
    this.vectors.draw([
      { label: joined([{ zh: "查询 q", en: "query q" }, normed]), vector: at(q) },
      { label: joined([{ zh: "键 k", en: "key k" }, normed]), vector: at(k) },
      { label: { zh: "值 v", en: "value v" }, vector: at(v) },
    ]);
  },

  drawMatrices() {
    const { head, position, signs, scaled } = this.page.state;
    const scores = this.block.scores[head];
    const hidden = (row, column) => this.isHidden(row, column);
    const common = { rows: signs, columns: signs, marked: position, picked: [position, this.column], hidden };
    const largest = largestOf(scores.filter((_, i) => !hidden(Math.floor(i / this.T), i % this.T)));
    const formula = scaled ? `q · k / √${this.D}` : "q · k";
    say(this.scoresTitle, { zh: `分数 = ${formula}`, en: `scores = ${formula}` });
    this.scores.draw({ ...common, values: scores, largest, digits: 1 });
    this.scoresScale.draw(largest);
    this.weights.draw({ ...common, values: this.block.weights[head], largest: 1, digits: 2 });
  },

  pair(row, column) {
    const { signs } = this.page.state;
    return {
      zh: `位置 ${row}「${signs[row]}」问位置 ${column}「${signs[column]}」`,
      en: `position ${row} “${signs[row]}” asks position ${column} “${signs[column]}”`,
    };
  },

  tellScore(row, column) {
    const score = number(this.block.scores[this.page.state.head][row * this.T + column], 3);
    if (!this.isHidden(row, column)) return [this.pair(row, column), score];
    return [this.pair(row, column), { zh: `被遮挡：${score} 变成 −∞`, en: `masked: ${score} becomes −∞` }];
  },

  tellWeight(row, column) {
    const weight = this.block.weights[this.page.state.head][row * this.T + column];
    return [this.pair(row, column), percent(weight)];
  },

  /** The picked cell from its terms to its share. */
  drawDotProduct() {
    const { D, T } = this;
    const { head, position, scaled } = this.page.state;
    const q = rowOf(this.block.qRotated[head], position, D);
    const k = rowOf(this.block.kRotated[head], this.column, D);
    const products = q.map((x, d) => x * k[d]);
    const score = dot(q, 0, k, 0, D);
    say(this.cellTitle, this.pair(position, this.column));
    const steps = [
      { zh: `q · k = ${D} 个乘积之和 = ${number(score, 3)}`, en: `q · k = sum of ${D} products = ${number(score, 3)}` },
      this.scalingStep(score, scaled),
      this.maskStep(),
      this.softmaxStep(rowOf(this.block.scores[head], position, T), rowOf(this.block.weights[head], position, T)),
    ];
    this.arithmetic.replaceChildren(...steps.map((step) => make("li", { say: step })));
    const turned = this.rotation ? { zh: "（转动后）", en: " (rotated)" } : "";
    const of = (letter, i) => joined([{ zh: `${letter}，位置 ${i}`, en: `${letter} of position ${i}` }, turned]);
    this.products.draw([
      { label: of("q", position), vector: q },
      { sign: "×", label: of("k", this.column), vector: k },
      { sign: "=", label: { zh: "逐项乘积", en: "products" }, vector: products, note: `Σ = ${number(score, 3)}` },
    ], "own");
    say(this.termsTitle, { zh: `写出全部 ${D} 项`, en: `All ${D} terms` });
    const term = (product, d) => `${number(q[d], 3)} × ${number(k[d], 3)} = ${number(product, 4)}`;
    const items = Array.from(products, (product, d) => make("li", { class: "number" }, term(product, d)));
    this.terms.replaceChildren(...items);
  },

  scalingStep(score, scaled) {
    const written = number(score, 3);
    if (!scaled) return { zh: `不除以 √${this.D}：${written}`, en: `not divided by √${this.D}: ${written}` };
    const root = Math.sqrt(this.D);
    return `÷ √${this.D} = ${written} ÷ ${number(root, 3)} = ${number(score / root, 3)}`;
  },

  maskStep() {
    const { column } = this;
    const { position, causal } = this.page.state;
    if (!causal) return { zh: "没有遮挡：所有位置都能看", en: "no mask: every position can be seen" };
    if (column <= position) {
      return { zh: `位置 ${column} 不在 ${position} 之后：能看`, en: `position ${column} is not after ${position}: visible` };
    }
    return {
      zh: `位置 ${column} 在 ${position} 之后：遮挡，分数变成 −∞`,
      en: `position ${column} is after ${position}: masked, the score becomes −∞`,
    };
  },

  /** The share of the picked score: e^(score − highest) over the sum of the same for the whole row. */
  softmaxStep(scores, weights) {
    const { position } = this.page.state;
    const weight = percent(weights[this.column]);
    if (this.isHidden(position, this.column)) return `softmax: e^−∞ = 0 → ${weight}`;
    const seen = scores.subarray(0, this.page.state.causal ? position + 1 : this.T);
    const most = Math.max(...seen);
    const sum = seen.reduce((total, score) => total + Math.exp(score - most), 0);
    const share = Math.exp(scores[this.column] - most);
    const division = `${number(share, 3)} ÷ ${number(sum, 3)} = ${weight}`;
    const [score, highestScore] = [scores[this.column], most].map((x) => number(x, 3));
    return {
      zh: `softmax：e^(${score} − 行内最大 ${highestScore}) ÷ 一行之和 = ${division}`,
      en: `softmax: e^(${score} − the row's highest ${highestScore}) ÷ the row's sum = ${division}`,
    };
  },

  drawSum() {
    const { D, T } = this;
    const { head, position, signs, causal } = this.page.state;
    const weights = rowOf(this.block.weights[head], position, T);
    const seen = causal ? position + 1 : T;
    const order = highest(weights.subarray(0, seen), seen);
    const rows = order.slice(0, HIGHEST_SHARES).map((i, n) => {
      const share = percent(weights[i]);
      const label = { zh: `${share} × 位置 ${i}「${signs[i]}」的值`, en: `${share} × value at ${i} “${signs[i]}”` };
      return { sign: n ? "+" : "", label, vector: this.weighted(weights, [i]), note: "" };
    });
    const rest = order.slice(HIGHEST_SHARES);
    const label = { zh: `其余 ${rest.length} 个位置`, en: `the other ${rest.length}` };
    if (rest.length) rows.push({ sign: "+", label, vector: this.weighted(weights, rest), note: "" });
    const read = { zh: "这个头读到的", en: "what this head reads" };
    rows.push({ sign: "=", label: read, vector: rowOf(this.block.heads[head], position, D) });
    this.sum.draw(rows);
  },

  /** The values (D) of some positions, each times its weight, added up. */
  weighted(weights, positions) {
    const values = this.block.v[this.page.state.head];
    const sum = new Float32Array(this.D);
    for (const i of positions) for (let d = 0; d < this.D; d++) sum[d] += weights[i] * values[i * this.D + d];
    return sum;
  },

  drawHeads() {
    if (!this.block) return;
    const { layer, head } = this.page.state;
    say(this.headsTitle, { zh: `第 ${layer + 1} 层的所有头`, en: `All heads of layer ${layer + 1}` });
    this.heads.forEach(({ choose, canvas }, i) => {
      choose.setAttribute("aria-pressed", i === head);
      paintThumbnail(canvas, this.block.weights[i], this.T, 1, (row, column) => this.isHidden(row, column));
    });
  },
});

/** With rope: how q and k are turned pair by pair, and that their dot product stays when both move on. */
class Rotation {
  constructor(root, page) {
    const { context_size, n_embd, n_head } = page.file.params.model;
    this.D = n_embd / n_head;
    this.shift = 0;
    root.append(make("h3", { say: { zh: "RoPE：用转动表示位置", en: "RoPE: position as a rotation" } }));
    root.append(make("p", { say: {
      zh:
        "q 和 k 的通道两两一对，每对是平面上的一支箭。位置 m 的第 i 对转动 m·θᵢ；θᵢ 一对比一对小，前面的对转得快，后面的转得慢。两个位置一起往后挪，两支箭转过同样的角度，夹角不变，点积也就不变：" +
        "注意力只看距离。",
      en:
        "The channels of q and k go in pairs, and each pair is an arrow in a plane. At position m pair i turns by " +
        "m·θᵢ; θᵢ falls from pair to pair, so the first turn fast and the last slowly. When both positions move on " +
        "together, both arrows turn by the same angle; the angle between them stays, and so does the dot product: " +
        "attention sees the distance alone.",
    } }));
    const controls = make("div", { class: "rotation-controls" });
    const label = { zh: "两个位置都往后挪", en: "Move both positions on by" };
    slider(controls, { label, min: 0, max: context_size, step: 1, value: 0, onInput: (shift) => this.move(shift) });
    this.table = make("table", { class: "rotation" });
    this.dials = make("div", { class: "dials" });
    this.legend = make("p", { class: "soft legend" });
    this.legend.append(make("span", { class: "q-arrow", say: { zh: "━ q", en: "━ q" } }));
    this.legend.append(make("span", { class: "k-arrow", say: { zh: "━ k", en: "━ k" } }));
    this.legend.append(make("span", { say: { zh: "细线：转动前", en: "thin lines: before the rotation" } }));
    root.append(controls, this.table, this.legend, this.dials);
    this.addDials();
  }

  addDials() {
    this.dialOf = Array.from({ length: this.D / 2 }, (_, pair) => {
      const theta = 10000 ** ((-2 * pair) / this.D);
      const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
      svg.setAttribute("viewBox", "-1.1 -1.1 2.2 2.2");
      svg.setAttribute("role", "img");
      const lines = ["q-before", "k-before", "q-after", "k-after"].map((kind) => {
        const line = document.createElementNS(svg.namespaceURI, "line");
        line.setAttribute("class", kind);
        return line;
      });
      const circle = document.createElementNS(svg.namespaceURI, "circle");
      circle.setAttribute("r", "1.05");
      svg.append(circle, ...lines);
      const caption = make("figcaption", { class: "soft", say: `θ = ${Number(theta.toPrecision(2))}` });
      this.dials.append(make("figure", { class: "dial" }, svg, caption));
      return { svg, lines, theta };
    });
  }

  move(shift) {
    this.shift = shift;
    this.show();
  }

  /** block: a block of the trace; the query stands at `row`, the key at `column`. */
  draw(block, head, row, column) {
    this.q = rowOf(block.q[head], row, this.D);
    this.k = rowOf(block.k[head], column, this.D);
    Object.assign(this, { row, column });
    this.show();
  }

  show() {
    const { q, k, row, column, shift, D } = this;
    const dotAt = (m, n) => number(dot(rotate(q, m), 0, rotate(k, n), 0, D), 3);
    const titles = ["", { zh: "q 在", en: "q at" }, { zh: "k 在", en: "k at" }, "q · k"];
    const line = (title, m, n) => {
      const cells = [m, n, dotAt(m, n)].map((cell) => make("td", { class: "number" }, String(cell)));
      return make("tr", {}, make("th", { scope: "row", say: title }), ...cells);
    };
    this.table.replaceChildren(
      make("tr", {}, ...titles.map((title) => make("th", { scope: "col", say: title }))),
      line({ zh: "原来", en: "as they are" }, row, column),
      line({ zh: "一起挪", en: "both moved" }, row + shift, column + shift),
      line({ zh: "只挪 q", en: "q alone moved" }, row + shift, column),
    );
    this.turn(rotate(q, row + shift), rotate(k, column + shift));
  }

  turn(qAfter, kAfter) {
    const { q, k, row, column, shift } = this;
    this.dialOf.forEach(({ svg, lines, theta }, pair) => {
      const vectors = [q, k, qAfter, kAfter].map((vector) => [vector[2 * pair], vector[2 * pair + 1]]);
      const [qLength, kLength] = vectors.map(lengthOf);
      lines.forEach((line, i) => {
        const length = (i % 2 ? kLength : qLength) || 1;
        line.setAttribute("x2", vectors[i][0] / length);
        line.setAttribute("y2", -vectors[i][1] / length); // the y axis of the screen points down
      });
      const angle = (m) => number(m * theta, 2);
      aria(svg, {
        zh: `第 ${pair} 对：q 转 ${angle(row + shift)} 弧度，k 转 ${angle(column + shift)} 弧度`,
        en: `pair ${pair}: q turned by ${angle(row + shift)} radians, k by ${angle(column + shift)}`,
      });
    });
  }
}
