// Widgets: strips of colour, matrices, bars, sliders, switches, choices, the row of characters.
//
// Each is made once, `new Strips(root, …)`, and drawn as often as the numbers change, `strips.draw(…)`. Values are
// coloured by one scale: blue above zero, orange below, the paper's own colour at zero.

/** 1.234 as "1.23", with a true minus sign; very small and very large numbers stay readable. */
function number(x, digits = 2) {
  if (x === -Infinity) return "−∞";
  const written = Math.abs(x) >= 10000 ? x.toExponential(1) : x.toFixed(digits);
  return (Number(written) === 0 ? written.replace("-", "") : written).replace("-", "−");
}

/** 0.1234 as "12.3%". */
function percent(share) {
  if (share > 0 && share < 0.0005) return "<0.1%";
  return `${(100 * share).toFixed(1)}%`;
}

/** The largest absolute value of some vectors, which gets the full colour. */
function largestOf(...vectors) {
  let largest = 0;
  for (const vector of vectors) for (const x of vector) if (Math.abs(x) > largest && isFinite(x)) largest = Math.abs(x);
  return largest;
}

/** ‖x‖, the length of a vector. */
function lengthOf(vector) {
  return Math.hypot(...vector);
}

/** Row `row` of a flat matrix with `width` columns, without copying it. */
function rowOf(flat, row, width) {
  return flat.subarray(row * width, (row + 1) * width);
}

// Colours

/** The colours of the theme as [r, g, b]: {zero, positive, negative, ink, paper, accent, line}. */
function themeColours() {
  const probe = make("span", { hidden: true });
  document.body.append(probe);
  const colours = {};
  for (const colour of ["zero", "positive", "negative", "ink", "paper", "accent", "line"]) {
    probe.style.color = `var(--${colour})`;
    colours[colour] = getComputedStyle(probe).color.match(/[\d.]+/g).slice(0, 3).map(Number);
  }
  probe.remove();
  return colours;
}

/** `share` (−1 to 1) of the way from zero to the positive or the negative colour. */
function colourOf(share, colours) {
  const end = share < 0 ? colours.negative : colours.positive;
  const way = Math.min(1, Math.abs(share));
  return colours.zero.map((from, i) => Math.round(from + way * (end[i] - from)));
}

/** Black or white, whichever is easier to read on the colour. */
function readableOn([r, g, b]) {
  return 0.299 * r + 0.587 * g + 0.114 * b > 128 ? "#111" : "#fff";
}

function css([r, g, b]) {
  return `rgb(${r} ${g} ${b})`;
}

/** A small picture with one pixel a cell: rows × columns values, full colour at ±largest, hidden cells transparent. */
function cellPicture(values, rows, columns, largest, colours, hidden = () => false) {
  const picture = document.createElement("canvas");
  picture.width = columns;
  picture.height = rows;
  const context = picture.getContext("2d");
  const pixels = context.createImageData(columns, rows);
  for (let i = 0; i < rows * columns; i++) {
    pixels.data.set(colourOf(values[i] / (largest || 1), colours), 4 * i);
    pixels.data[4 * i + 3] = hidden(Math.floor(i / columns), i % columns) ? 0 : 255;
  }
  context.putImageData(pixels, 0, 0);
  return picture;
}

/** Fits the canvas to its place on the screen; returns the context in CSS pixels and the size, or null if unseen. */
function fitCanvas(canvas) {
  const { clientWidth: width, clientHeight: height } = canvas;
  if (!width || !height) return null;
  const ratio = window.devicePixelRatio;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  const context = canvas.getContext("2d");
  context.scale(canvas.width / width, canvas.height / height);
  return { context, width, height };
}

/** Calls paint() when the size of the element on the screen has changed. */
function paintOnResize(element, paint) {
  new ResizeObserver(paint).observe(element);
}

// The note beside the pointer, and the line that screen readers read

const tip = {
  /** Shows lines of text beside the point (x, y) of the window; aloud: to screen readers too. */
  show(x, y, lines, aloud = false) {
    const box = document.getElementById("tip");
    box.replaceChildren(...lines.map((line) => make("div", { say: line })));
    box.hidden = false;
    const { width, height } = box.getBoundingClientRect();
    const below = y + 18 + height < innerHeight;
    box.style.left = `${Math.max(4, Math.min(x + 12, document.documentElement.clientWidth - width - 4))}px`;
    box.style.top = `${below ? y + 18 : Math.max(4, y - 12 - height)}px`;
    if (aloud) say(document.getElementById("live"), joined(lines, "，", ", "));
  },

  hide() {
    document.getElementById("tip").hidden = true;
  },
};

addEventListener("pointerdown", () => tip.hide(), { capture: true });

/** Texts, one behind the other. */
function joined(texts, zhBetween = "", enBetween = "") {
  const both = texts.map((text) => (typeof text === "string" ? { zh: text, en: text } : text));
  return { zh: both.map(({ zh }) => zh).join(zhBetween), en: both.map(({ en }) => en).join(enBetween) };
}

/**
 * Lets pointer and keyboard walk over the cells of an element.
 *
 * at(event) -> [row, column] or null; size() -> [rows, columns]; move(row, column, aloud) shows a cell, leave() takes
 * that back, pick(row, column) is a click or Enter; place() -> the cell that the keyboard starts from.
 */
function walkCells(element, { at, size, move, leave, pick, place }) {
  element.addEventListener("pointermove", (event) => {
    const cell = at(event);
    if (cell) move(...cell, false);
    else leave();
  });
  element.addEventListener("pointerleave", leave);
  element.addEventListener("pointercancel", leave); // a finger that turned out to scroll
  element.addEventListener("blur", leave);
  element.addEventListener("click", (event) => {
    const cell = at(event);
    if (!cell) return;
    move(...cell, false);
    pick?.(...cell);
  });
  element.addEventListener("focus", () => {
    if (element.matches(":focus-visible")) move(...place(), true);
  });
  element.addEventListener("keydown", (event) => {
    const [row, column] = place();
    const [rows, columns] = size();
    const target = {
      ArrowLeft: [row, column - 1], ArrowRight: [row, column + 1],
      ArrowUp: [row - 1, column], ArrowDown: [row + 1, column],
      Home: [row, 0], End: [row, columns - 1], Enter: [row, column], " ": [row, column], Escape: [],
    }[event.key];
    if (!target) return;
    event.preventDefault();
    if (event.key === "Escape") return leave();
    const cell = [Math.max(0, Math.min(target[0], rows - 1)), Math.max(0, Math.min(target[1], columns - 1))];
    move(...cell, true);
    if (event.key === "Enter" || event.key === " ") pick?.(...cell);
  });
}

// Strips

/**
 * Vectors as strips of colour, one below the other, a cell a channel; one focus for all of them.
 *
 * new Strips(root, {name, tell}): tell(channel) -> more lines for the note, may be left out.
 * draw([{label, vector, note, sign}], largest): label is the text above the strip, note a text at its right end
 * (made of its length if left out), sign one character before it ("+", "="). largest: what gets the full colour,
 * of all strips together if left out, each its own with "own".
 */
class Strips {
  constructor(root, { name: called, tell = () => [] }) {
    this.tell = tell;
    this.rows = [];
    this.row = this.channel = 0;
    this.shown = false;
    this.root = make("div", { class: "strips", role: "application", tabindex: "0", aria: called });
    root.append(this.root);
    walkCells(this.root, {
      at: (event) => this.at(event),
      size: () => [this.rows.length, this.rows[this.row].vector.length],
      place: () => [this.row, this.channel],
      move: (row, channel, aloud) => this.move(row, channel, aloud),
      leave: () => this.leave(),
    });
    paintOnResize(this.root, () => this.paint());
  }

  draw(rows, largest) {
    if (rows.length !== this.rows.length) this.addRows(rows.length);
    const common = typeof largest === "number" ? largest : largestOf(...rows.map(({ vector }) => vector));
    this.rows = rows.map((row, i) => {
      const line = this.lines[i];
      say(line.sign, row.sign ?? "");
      say(line.label, row.label);
      say(line.note, row.note ?? `‖x‖ = ${number(lengthOf(row.vector))}`);
      return { ...row, largest: largest === "own" ? largestOf(row.vector) : common };
    });
    this.row = Math.min(this.row, rows.length - 1);
    this.channel = Math.min(this.channel, rows[this.row].vector.length - 1);
    this.paint();
  }

  addRows(count) {
    this.lines = Array.from({ length: count }, () => {
      const [sign, label] = [make("span", { class: "operator" }), make("span")];
      return { sign, label, note: make("span", { class: "note soft number" }), canvas: make("canvas") };
    });
    this.root.replaceChildren(...this.lines.map(({ sign, label, note, canvas }) => {
      return make("div", { class: "strip" }, make("div", {}, sign, label), canvas, note);
    }));
  }

  paint() {
    const colours = themeColours();
    this.rows.forEach(({ vector, largest }, row) => {
      const fitted = fitCanvas(this.lines[row].canvas);
      if (!fitted) return;
      const { context, width, height } = fitted;
      context.imageSmoothingEnabled = false;
      context.drawImage(cellPicture(vector, 1, vector.length, largest, colours), 0, 0, width, height);
      if (!this.shown) return;
      const cell = width / vector.length;
      context.strokeStyle = css(colours.accent);
      context.lineWidth = 2;
      context.strokeRect(this.channel * cell, 1, Math.max(cell, 2), height - 2);
    });
  }

  at(event) {
    const row = this.lines.findIndex(({ canvas }) => canvas === event.target);
    if (row < 0) return null;
    const box = event.target.getBoundingClientRect();
    const channels = this.rows[row].vector.length;
    const channel = Math.floor((channels * (event.clientX - box.left)) / box.width);
    return [row, Math.max(0, Math.min(channel, channels - 1))];
  }

  move(row, channel, aloud) {
    Object.assign(this, { row, channel, shown: true });
    this.paint();
    const { label, vector } = this.rows[row];
    const box = this.lines[row].canvas.getBoundingClientRect();
    const lines = [
      joined([label, { zh: `，第 ${channel} 通道`, en: `, channel ${channel}` }]),
      number(vector[channel], 4),
      ...this.tell(channel),
    ];
    tip.show(box.left + ((channel + 0.5) * box.width) / vector.length, box.top + box.height / 2, lines, aloud);
  }

  leave() {
    this.shown = false;
    this.paint();
    tip.hide();
  }
}

// Matrices

const LABELS = 24; // pixels for the labels at the left and on top
const LARGEST_CELL = 40;
const ROOM_FOR_NUMBERS = 31;
const ROOM_FOR_SIGNS = 10;

/**
 * A matrix with a character before each row and above each column.
 *
 * new Matrix(root, {name, tell, onPick}): tell(row, column) -> lines of the note; onPick(row, column) on click, Enter.
 * draw({values (rows × columns, flat), rows: signs, columns: signs, largest, digits, hidden(row, column), marked: row,
 * picked: [row, column]}). Hidden cells are hatched; digits: how numbers are written where cells are large enough.
 */
class Matrix {
  constructor(root, { name: called, tell, onPick }) {
    this.tell = tell;
    this.data = null;
    this.cursor = null;
    this.canvas = make("canvas", { class: "matrix", role: "application", tabindex: "0", aria: called });
    root.append(this.canvas);
    walkCells(this.canvas, {
      at: (event) => this.at(event),
      size: () => [this.data.rows.length, this.data.columns.length],
      place: () => this.cursor ?? this.data.picked ?? [0, 0],
      move: (row, column, aloud) => this.move(row, column, aloud),
      leave: () => this.leave(),
      pick: onPick,
    });
    paintOnResize(this.canvas, () => this.paint());
  }

  draw(data) {
    const largest = data.largest ?? largestOf(data.values);
    this.data = { digits: 1, hidden: () => false, marked: -1, picked: null, ...data, largest };
    this.cursor = null;
    this.paint();
  }

  /** Pixels of one cell. */
  get cell() {
    const { clientWidth, clientHeight } = this.canvas;
    const { rows, columns } = this.data;
    const width = (clientWidth - LABELS - 1) / columns.length;
    return Math.min(width, (clientHeight - LABELS - 1) / rows.length, LARGEST_CELL);
  }

  paint() {
    const fitted = this.data && fitCanvas(this.canvas);
    if (!fitted) return;
    const { context } = fitted;
    const { values, rows, columns, largest, hidden } = this.data;
    const colours = themeColours();
    context.save();
    context.translate(LABELS, LABELS);
    context.imageSmoothingEnabled = false;
    const [width, height] = [columns.length * this.cell, rows.length * this.cell];
    context.fillStyle = context.createPattern(hatching(colours), "repeat"); // seen where cells are hidden
    context.fillRect(0, 0, width, height);
    context.drawImage(cellPicture(values, rows.length, columns.length, largest, colours, hidden), 0, 0, width, height);
    if (this.cell >= ROOM_FOR_SIGNS) this.paintGrid(context, colours);
    if (this.cell >= ROOM_FOR_NUMBERS) this.paintNumbers(context, colours);
    this.paintFrames(context, colours);
    context.restore();
    this.paintSigns(context, colours);
  }

  paintGrid(context, colours) {
    const { rows, columns } = this.data;
    const [width, height] = [columns.length * this.cell, rows.length * this.cell];
    context.strokeStyle = css(colours.paper);
    context.lineWidth = 1;
    context.beginPath();
    for (let row = 0; row <= rows.length; row++) {
      context.moveTo(0, row * this.cell);
      context.lineTo(width, row * this.cell);
    }
    for (let column = 0; column <= columns.length; column++) {
      context.moveTo(column * this.cell, 0);
      context.lineTo(column * this.cell, height);
    }
    context.stroke();
  }

  paintNumbers(context, colours) {
    const { values, rows, columns, largest, digits, hidden } = this.data;
    const room = this.cell - 3; // a longer number is set narrower
    context.font = "10px system-ui, sans-serif";
    context.textAlign = "center";
    context.textBaseline = "middle";
    for (let row = 0; row < rows.length; row++) {
      for (let column = 0; column < columns.length; column++) {
        if (hidden(row, column)) continue;
        const value = values[row * columns.length + column];
        context.fillStyle = readableOn(colourOf(value / (largest || 1), colours));
        context.fillText(number(value, digits), (column + 0.5) * this.cell, (row + 0.5) * this.cell, room);
      }
    }
  }

  /** A line around the marked row, around the picked cell and around the cell under the pointer. */
  paintFrames(context, colours) {
    const { columns, marked, picked } = this.data;
    context.strokeStyle = css(colours.accent);
    context.lineWidth = 1.5;
    if (marked >= 0) context.strokeRect(0, marked * this.cell, columns.length * this.cell, this.cell);
    context.lineWidth = 3;
    for (const cell of [picked, this.cursor]) {
      if (cell) context.strokeRect(cell[1] * this.cell, cell[0] * this.cell, this.cell, this.cell);
    }
  }

  /** Labels; where cells are smaller than a character, every second, third, … one. */
  paintSigns(context, colours) {
    const { rows, columns, marked } = this.data;
    const every = Math.ceil(ROOM_FOR_SIGNS / this.cell);
    const size = Math.max(ROOM_FOR_SIGNS, Math.min(14, this.cell * 0.8));
    context.textAlign = "center";
    context.textBaseline = "middle";
    for (let row = 0; row < rows.length; row += every) {
      context.font = `${row === marked ? "bold " : ""}${size}px system-ui, "Noto Sans CJK SC", sans-serif`;
      context.fillStyle = css(row === marked ? colours.accent : colours.ink);
      context.fillText(rows[row], LABELS / 2, LABELS + (row + 0.5) * this.cell);
    }
    context.font = `${size}px system-ui, "Noto Sans CJK SC", sans-serif`;
    context.fillStyle = css(colours.ink);
    for (let column = 0; column < columns.length; column += every) {
      context.fillText(columns[column], LABELS + (column + 0.5) * this.cell, LABELS / 2);
    }
  }

  at(event) {
    const box = this.canvas.getBoundingClientRect();
    const column = Math.floor((event.clientX - box.left - LABELS) / this.cell);
    const row = Math.floor((event.clientY - box.top - LABELS) / this.cell);
    const inside = row >= 0 && column >= 0 && row < this.data.rows.length && column < this.data.columns.length;
    return inside ? [row, column] : null;
  }

  move(row, column, aloud) {
    this.cursor = [row, column];
    this.paint();
    const box = this.canvas.getBoundingClientRect();
    const x = box.left + LABELS + (column + 0.5) * this.cell;
    tip.show(x, box.top + LABELS + (row + 0.5) * this.cell, this.tell(row, column), aloud);
  }

  leave() {
    this.cursor = null;
    this.paint();
    tip.hide();
  }
}

/** A tile of slanting lines, for what cannot be seen. */
function hatching(colours) {
  const tile = document.createElement("canvas");
  tile.width = tile.height = 6;
  const context = tile.getContext("2d");
  context.fillStyle = css(colours.paper);
  context.fillRect(0, 0, 6, 6);
  context.strokeStyle = css(colours.line);
  context.lineWidth = 1.2;
  context.beginPath();
  for (const shift of [-6, 0, 6]) {
    context.moveTo(shift, 6);
    context.lineTo(shift + 6, 0);
  }
  context.stroke();
  return tile;
}

/** Paints a small square matrix without labels into a canvas of its own, for a button. */
function paintThumbnail(canvas, values, size, largest, hidden) {
  const fitted = fitCanvas(canvas);
  if (!fitted) return;
  const { context, width, height } = fitted;
  context.imageSmoothingEnabled = false;
  context.drawImage(cellPicture(values, size, size, largest, themeColours(), hidden), 0, 0, width, height);
}

/** The scale of the colours: draw(largest) from −largest to largest, from 0 with `fromZero`; null: to each its own. */
class Scale {
  constructor(root, { fromZero = false } = {}) {
    this.fromZero = fromZero;
    this.ends = [make("span"), make("span")];
    const ramp = make("span", { class: fromZero ? "ramp from-zero" : "ramp" });
    root.append(make("div", { class: "scale soft" }, this.ends[0], ramp, this.ends[1]));
  }

  draw(largest, digits = 2) {
    const most = { zh: "最大", en: "largest" };
    say(this.ends[0], this.fromZero ? "0" : largest === null ? joined(["−", most]) : number(-largest, digits));
    say(this.ends[1], largest === null ? most : number(largest, digits));
  }
}

// Bars

/**
 * Rows of label, bar, number: new Bars(root, {name, onPick}), draw([{label, share, text, name, picked, negative}]).
 *
 * share (0 to 1) is the length of the bar, text the number at its end, negative: in the colour of numbers below zero.
 * With onPick(i) each row is a button, `name` what screen readers call it. The elements stay when the numbers change,
 * so the focus stays, too. `rows` reserves their height, so that nothing below moves.
 */
class Bars {
  constructor(root, { name: called, onPick = null, rows = 0 }) {
    this.onPick = onPick;
    this.list = make("ol", { class: "bars", aria: called });
    this.list.style.minHeight = `calc(${rows} * var(--bar))`;
    root.append(this.list);
  }

  draw(rows) {
    while (this.list.children.length > rows.length) this.list.lastChild.remove();
    while (this.list.children.length < rows.length) this.addRow(this.list.children.length);
    rows.forEach((row, i) => {
      const line = this.list.children[i].firstChild;
      const [label, track, value] = line.children;
      say(label, row.label);
      track.firstChild.style.width = `${100 * row.share}%`;
      say(value, row.text);
      line.classList.toggle("picked", Boolean(row.picked));
      line.classList.toggle("negative", Boolean(row.negative));
      if (row.name) aria(line, row.name);
    });
  }

  addRow(i) {
    const line = this.onPick
      ? make("button", { type: "button", class: "bar", onclick: () => this.onPick(i) })
      : make("div", { class: "bar" });
    const track = make("span", { class: "track" }, make("span", { class: "fill" }));
    line.append(make("span", { class: "sample", lang: "zh-CN" }), track, make("span", { class: "number" }));
    this.list.append(make("li", {}, line));
  }
}

// Controls

let controls = 0; // for ids and for the names of groups of radio buttons

/** A slider with its value beside it: slider(root, {label, min, max, step, value, show, onInput}) -> {set(value)}. */
function slider(root, { label, min, max, step, value, show = String, onInput }) {
  const id = `control-${++controls}`;
  const output = make("output", { for: id, class: "number" });
  const input = make("input", { id, type: "range", min, max, step });
  const set = (x) => {
    input.value = x;
    say(output, show(Number(x)));
    input.setAttribute("aria-valuetext", inLanguage(show(Number(x))));
  };
  input.addEventListener("input", () => {
    set(input.value);
    onInput(Number(input.value));
  });
  root.append(make("div", { class: "control slider" }, make("label", { for: id, say: label }), input, output));
  set(value);
  return { set };
}

/** A switch: toggle(root, {label, on, onChange}) -> {set(on)}. */
function toggle(root, { label, on, onChange }) {
  const input = make("input", { type: "checkbox", role: "switch", onchange: () => onChange(input.checked) });
  input.checked = on;
  root.append(make("label", { class: "control toggle" }, input, make("span", { say: label })));
  return { set: (checked) => (input.checked = checked) };
}

/** One of several: choice(root, {label, options: [{value, label}], value, onChange}) -> {set(value)}. */
function choice(root, { label, options, value, onChange }) {
  const group = `control-${++controls}`;
  const inputs = options.map((option) => {
    return make("input", { type: "radio", name: group, onchange: () => onChange(option.value) });
  });
  const labels = options.map((option, i) => make("label", {}, inputs[i], make("span", { say: option.label })));
  const set = (chosen) => options.forEach((option, i) => (inputs[i].checked = option.value === chosen));
  root.append(make("fieldset", { class: "control choice" }, make("legend", { say: label }), ...labels));
  set(value);
  return { set };
}

/** A button: button(root, {label, onClick}) -> the element. */
function button(root, { label, onClick }) {
  const element = make("button", { type: "button", say: label, onclick: onClick });
  root.append(element);
  return element;
}

/**
 * The characters that the model reads, one of which is chosen: new Ribbon(root, page), update(changed).
 *
 * Choosing sets page.state.position. Call update in the panel's update.
 */
class Ribbon {
  constructor(root, page) {
    this.page = page;
    this.group = `control-${++controls}`;
    this.root = make("fieldset", { class: "ribbon" });
    this.root.append(make("legend", { say: { zh: "选一个位置", en: "Choose a position" } }));
    this.signs = make("div", { class: "signs" });
    this.root.append(this.signs);
    root.append(this.root);
  }

  update(changed) {
    const { ids, position } = this.page.state;
    if (changed.has("ids")) this.signs.replaceChildren(...ids.map((_, i) => this.addSign(i)));
    if (!changed.has("ids") && !changed.has("position")) return;
    const chosen = this.signs.children[position];
    chosen.firstChild.checked = true;
    this.signs.scrollLeft = chosen.offsetLeft - (this.signs.clientWidth - chosen.clientWidth) / 2;
  }

  addSign(i) {
    const { signs, ids } = this.page.state;
    const input = make("input", { type: "radio", name: this.group, onchange: () => this.page.set({ position: i }) });
    aria(input, { zh: `位置 ${i}：${signs[i]}`, en: `position ${i}: ${signs[i]}` });
    const unknown = ids[i] === this.page.file.UNK ? "sign unknown" : "sign";
    return make("label", {}, input, make("span", { class: unknown, lang: "zh-CN", say: signs[i] }));
  }
}
