// A printed page shows all its figures, also those that were not yet loaded.
window.addEventListener("beforeprint", () => {
  for (const image of document.querySelectorAll("img[loading=lazy]")) image.loading = "eager";
});
