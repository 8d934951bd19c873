// Last: open the data that stands at the end of the page, and show it.

let page = null; // stays null if the data is damaged

addEventListener("DOMContentLoaded", () => {
  let file;
  try {
    file = openFile(document.getElementById("file")?.textContent ?? "");
  } catch (error) {
    showDamage(error);
    return;
  }
  page = new Page(file);
  page.start();
});
