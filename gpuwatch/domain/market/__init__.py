"""What is for sale: offers, GPU names, prices. Pure: values in, values out."""
